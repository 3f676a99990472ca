// The CPU: an arena and scratch in the host's memory, kernels and threads.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cpu_op.h"
#include "executor.h"
#include "guard.h"
#include "profile.h"

namespace satchel {

class CpuExecutor : public Executor {
 public:
  // What an executor beside the host's own takes; memory of its own, as another chip's would be.
  struct Beside {
    std::string name;
    std::set<std::string> ops;
  };

  // 0 threads: as many as there are cores.
  explicit CpuExecutor(int threads, std::optional<Beside> beside = std::nullopt);

  const std::string& name() const override { return name_; }
  std::string refuses(const NodeCall& call) const override;
  void open(std::shared_ptr<const Program> program, uint64_t arena_bytes) override;
  std::unique_ptr<StateMemory> make_state(size_t state, uint64_t bytes) override;
  std::unique_ptr<Part> prepare(BoundMethod& method, const PartInfo& info) override;

  // Where a tensor lies in this executor's memory.
  void locate(Tensor& t) const;

  int threads() const { return pool_->size(); }
  const char* kernels() const { return kernels_.name; }
  // An output's bytes, while they are still there. Every thread copies what is likely in its own
  // cache.
  void copy(const uint8_t* from, size_t bytes, uint8_t* to);

  // From here on calls are timed, op by op, until the times are taken.
  void start_profile() override { profile_.emplace(); }
  Profile take_profile() override {
    return std::exchange(profile_, std::nullopt).value_or(Profile{});
  }

 private:
  friend class CpuPart;

  // A forked process takes one of its own.
  ThreadPool& pool();
  void need_scratch(const std::string& method, size_t bytes);

  std::string name_ = "cpu";
  std::optional<Beside> beside_;
  const KernelTable& kernels_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<const Program> program_;
  std::vector<uint8_t*> states_;  // by their number; null: another executor's
  ZeroedPages arena_;
  ZeroedPages scratch_;
  std::vector<Region> guarded_;  // the scratch, the arena, the weights, the states
  std::optional<Profile> profile_;
};

// Refuses what would bring the system down when it is written to: pages are given when first
// touched, so asking for them tells nothing.
void require_memory(const std::string& what, uint64_t bytes);

}  // namespace satchel
