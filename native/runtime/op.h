// What an op of the CPU backend is: a check of shapes and attributes, and the work itself.
#pragma once

#include <span>
#include <string>

#include "../kernels/kernels.h"
#include "method.h"
#include "sequences.h"
#include "thread_pool.h"
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

// What `check` finds out from the attributes, so that `run` need not look them up by name.
struct Params {
  double number[4] = {};
  int64_t integer[16] = {};
  Activation activation = Activation::none;
};

// One node of a method, bound to the tensors of an instance.
struct NodeCall {
  const NodeInfo* info = nullptr;
  std::vector<Tensor*> inputs;  // null where absent
  Tensor* output = nullptr;
  Params params;
  size_t scratch = 0;  // bytes that `check` asked for
  size_t joined = 0;   // how many of the calls after this one are done along with it

  bool has(size_t input) const { return input < inputs.size() && inputs[input]; }
  const Tensor& in(size_t i) const { return *inputs[i]; }
};

// What the nodes of an instance share.
struct Workspace {
  const KernelTable& kernels;
  ThreadPool& pool;
  uint8_t* scratch;
  Sequences& sequences;
};

struct OpDef {
  const char* name;
  uint8_t min_inputs;
  uint8_t max_inputs;
  bool writes_state;
  const char* attributes[16];  // the names it knows
  // Throws ExecutionError if the tensors do not fit; returns the bytes of scratch it needs.
  size_t (*check)(NodeCall& call, int threads);
  // May throw ExecutionError for values (not shapes) that are out of range. Also does the calls
  // that are joined to this one, which lie behind it.
  void (*run)(const NodeCall& call, const Workspace& work);
  // Whether the call after `calls`, the first of which is this op's, can be done along with them.
  bool (*joins)(std::span<const NodeCall> calls, const NodeCall& next) = nullptr;
  bool uses_caches = false;  // whether its inputs may be caches of sequences
};

const OpDef* find_op(const std::string& name);
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

// Pieces for a loop over `count` items that are cheap: at least `smallest` in each.
inline int64_t grain_for(int64_t count, int threads, int64_t smallest) {
  return std::max(smallest, (count + 4 * threads - 1) / (4 * threads));
}

// Whether a layer over so many pixels stays on one thread: with few of them, the windows of two
// threads see the same lines, and writing to a line that another core has read costs more than the
// second thread gives.
inline bool stays_on_one_thread(int64_t pixels, double multiply_adds) {
  return pixels > 1 && pixels <= 126 && multiply_adds < 2e6;
}

// The bytes from one thread's part of the scratch to the next: the same for most layers, so that a
// part stays in the cache of one core.
inline size_t scratch_apart(size_t bytes, int threads) {
  const size_t step = threads == 1 || threads > 16 ? 64 : size_t{4} << 20;
  return (bytes + step - 1) / step * step;
}

std::span<const OpDef> along_axis_ops();
std::span<const OpDef> conv_ops();
std::span<const OpDef> integer_ops();
std::span<const OpDef> linear_ops();
std::span<const OpDef> pool_ops();
std::span<const OpDef> attention_ops();
std::span<const OpDef> attention_codes_ops();
std::span<const OpDef> attention_full_ops();
std::span<const OpDef> elementwise_ops();
std::span<const OpDef> hadamard_ops();
std::span<const OpDef> normalize_ops();
std::span<const OpDef> quantized_ops();
std::span<const OpDef> reduce_ops();
std::span<const OpDef> requantize_ops();
std::span<const OpDef> select_ops();
std::span<const OpDef> shape_ops();
std::span<const OpDef> state_ops();

}  // namespace satchel
