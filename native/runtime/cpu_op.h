// How the CPU runs an op.
#pragma once

#include <algorithm>
#include <span>

#include "op.h"
#include "sequences.h"
#include "thread_pool.h"

namespace satchel {

// What the calls of an executor share.
struct Workspace {
  const KernelTable& kernels;
  ThreadPool& pool;
  uint8_t* scratch;
  Sequences& sequences;
};

struct CpuOp {
  // May throw ExecutionError for values (not shapes) that are out of range. Also does the calls
  // that are joined to this one, which lie behind it.
  void (*run)(const NodeCall& call, const Workspace& work) = nullptr;
  // The bytes of scratch that a checked call needs; null: none. Throws ExecutionError if it is too
  // much.
  size_t (*scratch)(const NodeCall& call, int threads) = nullptr;
  // Whether the call after `calls`, the first of which is this op's, can be done along with them.
  bool (*joins)(std::span<const NodeCall> calls, const NodeCall& next) = nullptr;
};

// An op's schema and the CPU's way side by side, which is how files of ops list them.
struct OpDef {
  OpSchema schema;
  CpuOp cpu;
};

const CpuOp* find_cpu_op(const OpSchema& schema);  // null if the CPU has no way to run it

// --- For writing ops ---

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
std::span<const OpDef> choose_ops();
std::span<const OpDef> conv_ops();
std::span<const OpDef> expert_ops();
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
