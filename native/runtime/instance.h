// A program being run: its states (KV caches), sequences and methods, whose parts executors run.
// One caller at a time.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cpu_executor.h"
#include "placement.h"

namespace satchel {

struct ArrayView {
  DType dtype;
  std::vector<int64_t> shape;
  const void* data;
};

class Instance {
 public:
  using Executors = std::vector<std::shared_ptr<Executor>>;

  // 0 threads: as many as there are cores. The caches' pages may take `cache_memory` bytes in all;
  // 0: half of what the machine has, which is used as texts grow. `executors` are asked for each
  // node in their order, and the CPU runs the others.
  Instance(std::shared_ptr<const Program> program, int threads, uint64_t cache_memory = 0,
           Executors executors = {});

  // Runs a method. The views point into the arena and are valid until the next call.
  std::vector<ArrayView> run(size_t method, const std::vector<ArrayView>& inputs);

  // Tokens that follow one another, chosen where the logits are: see Part::run_chain. None if the
  // method is not one of tokens and their places, or who runs it cannot choose.
  std::vector<int32_t> run_chain(size_t method, Chain chain);

  // All states are what they were at first.
  void reset();

  // Where the rows of the caches lie; not while a method runs.
  Sequences& sequences() { return *sequences_; }

  const Program& program() const { return *program_; }
  CpuExecutor& cpu() { return *cpu_; }
  const Executors& executors() const { return executors_; }
  const Placement& placement() const { return placement_; }
  // What its executors take now of memories that are not the host's.
  uint64_t device_memory() const {
    uint64_t bytes = 0;
    for (const auto& executor : executors_) bytes += executor->memory_taken();
    return bytes;
  }
  // Held while a method runs and its results are copied. Recursive: an interpreter's collector may
  // close a sequence in between.
  std::recursive_mutex& mutex() { return mutex_; }

 private:
  // Binds the method to inputs.
  void bind(size_t method, const std::vector<ArrayView>& inputs);
  // The method has these sizes from here on, and so have its parts from the first to the one that
  // finds out another size.
  void bind_parts(size_t method, size_t first, const std::vector<int64_t>& sizes);
  // A part has found out a size: what is behind it is bound to that.
  void bind_decided(size_t method, size_t part);
  // The sizes that the inputs give to the method's symbols.
  std::vector<int64_t> take_inputs(BoundMethod& bound, const std::vector<ArrayView>& inputs);

  std::shared_ptr<const Program> program_;
  std::shared_ptr<CpuExecutor> cpu_;
  Executors executors_;  // the CPU first
  std::vector<BoundMethod> methods_;
  Placement placement_;
  std::unique_ptr<Sequences> sequences_;
  std::vector<std::unique_ptr<StateMemory>> states_;       // null: a cache
  std::vector<std::vector<std::unique_ptr<Part>>> parts_;  // by the method's number
  std::recursive_mutex mutex_;
  uint64_t calls_ = 0;
};

}  // namespace satchel
