// A program being run: its states (KV caches), arena and threads. One caller at a time.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "guard.h"
#include "last_rows.h"
#include "op.h"
#include "profile.h"
#include "program.h"

namespace satchel {

struct ArrayView {
  DType dtype;
  std::vector<int64_t> shape;
  const void* data;
};

// The tensors and nodes of one method, for given sizes of its symbols.
class BoundMethod {
 public:
  // `states` and `arena` are where the instance keeps them; both may be null to check shapes only.
  BoundMethod(const Program& program, const Method& method, const std::vector<uint8_t*>& states,
              uint8_t* arena);
  BoundMethod(BoundMethod&&) = default;  // and no copy: calls point to tensors

  // Sets the symbols' sizes and checks every node; returns the bytes of scratch needed.
  // Does nothing if the sizes are those of the last call.
  size_t bind(const std::vector<int64_t>& sizes, int threads);

  const Method& method() const { return *method_; }
  Tensor& tensor(uint32_t id) { return tensors_[id]; }
  // Whether some rows can be left out, now that the inputs are there; returns the bytes of scratch
  // needed.
  size_t choose_rows(int threads);
  const std::vector<NodeCall>& chosen_calls() const {
    return shortened_ ? last_rows_->calls() : calls_;
  }

 private:
  void count_uses();

  const Method* method_;
  std::vector<Tensor> tensors_;
  std::vector<NodeCall> calls_;
  std::optional<LastRows> last_rows_;
  bool shortened_ = false;
  std::vector<int64_t> bound_;
  size_t scratch_ = 0;
};

class Instance {
 public:
  // 0 threads: as many as there are cores. The caches' pages may take `cache_memory` bytes in all;
  // 0: half of what the machine has, which is used as texts grow.
  Instance(std::shared_ptr<const Program> program, int threads, uint64_t cache_memory = 0);

  // Runs a method. The views point into the arena and are valid until the next call.
  std::vector<ArrayView> run(size_t method, const std::vector<ArrayView>& inputs);
  // An output's bytes, while they are still there. Every thread copies what is likely in its own
  // cache.
  void copy(const ArrayView& output, size_t bytes, uint8_t* to);

  // All states are what they were at first.
  void reset();

  // From here on calls are timed, op by op, until the times are taken.
  void start_profile() { profile_.emplace(); }
  Profile take_profile() { return std::exchange(profile_, std::nullopt).value_or(Profile{}); }

  // Where the rows of the caches lie; not while a method runs.
  Sequences& sequences() { return sequences_; }

  const Program& program() const { return *program_; }
  int threads() const { return pool_.size(); }
  const char* kernels() const { return kernels_.name; }
  // Held while a method runs and its results are copied. Recursive: an interpreter's collector may
  // close a sequence in between.
  std::recursive_mutex& mutex() { return mutex_; }

 private:
  std::shared_ptr<const Program> program_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  Sequences sequences_;
  std::vector<ZeroedPages> states_;
  ZeroedPages arena_;
  ZeroedPages scratch_;
  std::vector<Region> guarded_;
  std::vector<BoundMethod> methods_;
  std::recursive_mutex mutex_;
  uint64_t calls_ = 0;
  std::optional<Profile> profile_;
};

}  // namespace satchel
