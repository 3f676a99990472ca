// What the host knows beforehand of several runs of the same commands. It lies
// side by side, and commands of their own bring each run's to where the
// commands find it.
#pragma once

#include <memory>
#include <vector>

#include "recorder.h"

namespace satchel::vulkan {

class RunInputs {
 public:
  static constexpr size_t kMostRuns = 32;
  struct Target {
    Place to;
    bool only_first;  // the other runs have it from the one before
  };

  RunInputs(const Device& device, Pipelines& pipelines) : device_(device), pipelines_(pipelines) {}

  // Where bytes go; what was recorded before is recorded again.
  void set_targets(std::vector<Target> targets);
  void write(size_t run, size_t target, const uint8_t* bytes);
  // To be submitted before the run's own commands.
  VkCommandBuffer commands(size_t run);
  // Behind the last run: what was written can be read by the host.
  VkCommandBuffer end();

 private:
  struct Feed {
    std::unique_ptr<Recorder> recorder;
    VkCommandBuffer commands = nullptr;  // null: to be recorded
  };

  uint64_t place_of(size_t run, size_t target) const { return run * bytes_ + offsets_[target]; }

  const Device& device_;
  Pipelines& pipelines_;
  std::vector<Target> targets_;
  std::vector<uint64_t> offsets_;  // of the targets' bytes among those of a run
  uint64_t bytes_ = 0;             // of a run
  std::unique_ptr<Buffer> buffer_;
  std::vector<Feed> feeds_;
  Feed end_;
};

}  // namespace satchel::vulkan
