// An op's schema: how many inputs, which attributes, which shapes. How the CPU runs it is in
// cpu_op.h; other executors have their own ways.
#pragma once

#include <span>
#include <string>

#include "../kernels/kernels.h"
#include "method.h"
#include "types.h"

namespace satchel {

// A value with its size of this call and its memory.
struct Tensor {
  const ValueInfo* info = nullptr;
  const WeightEntry* weight = nullptr;  // for values that are weights
  DType dtype = DType::f32;
  size_t rank = 0;
  int64_t shape[kMaxRank] = {};
  uint8_t* data = nullptr;  // null for weights that are packed matrices
  bool paged = false;       // a cache: data are the pages of all sequences
  size_t uses = 0;          // of what a node wrote: by nodes, and as outputs of the method
  // Who wrote what is read here: the value itself, or one at the same place of the arena where no
  // node writes it, as with a reshape that need not be done.
  const Tensor* source = this;

  int64_t elements() const { return product(0, rank); }
  int64_t last() const { return rank ? shape[rank - 1] : 1; }
  int64_t product(size_t begin, size_t end) const {
    int64_t n = 1;
    for (size_t i = begin; i < end; ++i) n *= shape[i];
    return n;
  }
  float* f32() const { return reinterpret_cast<float*>(data); }
  int32_t* i32() const { return reinterpret_cast<int32_t*>(data); }
  uint16_t* f16() const { return reinterpret_cast<uint16_t*>(data); }
};

struct CpuOp;

// What `check` finds out from the attributes, so that nobody need look them up by name.
struct Params {
  double number[4] = {};
  int64_t integer[16] = {};
  Activation activation = Activation::none;
};

// One node of a method, bound to tensors.
struct NodeCall {
  const NodeInfo* info = nullptr;
  std::vector<Tensor*> inputs;  // null where absent
  Tensor* output = nullptr;
  Params params;

  // Of the CPU's executor.
  const CpuOp* cpu = nullptr;  // how it runs the op; null if it cannot
  size_t scratch = 0;          // bytes
  size_t joined = 0;           // how many of the calls after this one are done along with it

  bool has(size_t input) const { return input < inputs.size() && inputs[input]; }
  const Tensor& in(size_t i) const { return *inputs[i]; }
};

struct OpSchema {
  const char* name;
  uint8_t min_inputs;
  uint8_t max_inputs;
  bool writes_state;
  const char* attributes[16];  // the names it knows
  // Throws ExecutionError if the tensors do not fit; fills in the parameters.
  void (*check)(NodeCall& call);
  bool uses_caches = false;  // whether its inputs may be caches of sequences
  // Whether only running it tells how many rows its output has: it leaves their number in the
  // output's shape, and the symbol that stands there has it from then on.
  bool decides_size = false;
  bool takes_empty = false;  // whether an input may have no elements where the output has some
};

const OpSchema* find_schema(const std::string& name);
std::vector<std::string> op_names();

// --- For writing ops ---

[[noreturn]] void reject(const NodeCall& call, const std::string& message);
inline void require(bool condition, const NodeCall& call, const char* message) {
  if (!condition) reject(call, message);
}
void require_array(const NodeCall& call, const Tensor& t,
                   DType dtype);  // memory of its own, not packed
bool same_shape(const Tensor& a, const Tensor& b);
int64_t int_attribute(const NodeCall& call, const char* name, std::optional<int64_t> fallback = {});
double number_attribute(const NodeCall& call, const char* name,
                        std::optional<double> fallback = {});
std::string text_attribute(const NodeCall& call, const char* name, const char* fallback);
std::vector<int64_t> ints_attribute(const NodeCall& call, const char* name);
Activation activation_attribute(const NodeCall& call);

// A reduction's axes as a bit mask, when the output is what `axes` and `keepdims` leave of the
// input.
int64_t check_reduced(const NodeCall& call);

}  // namespace satchel
