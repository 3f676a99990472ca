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
  // Of a target that only the first run has, what later runs write is left out.
  void write(size_t run, size_t target, const uint8_t* bytes);
  // To be submitted before the run's own commands.
  VkCommandBuffer commands(size_t run);
  // Behind the last run: what the runs made is copied to where the host reads it. The places are
  // the same each time.
  VkCommandBuffer end(const Place& made, const Place& shown);

 private:
  struct Feed {
    std::unique_ptr<Recorder> recorder;
    VkCommandBuffer commands = nullptr;  // null: to be recorded
  };

  uint64_t place_of(size_t run, size_t target) const;
  // Whether two targets' bytes lie behind one another, here and where they go.
  bool are_together(size_t target, const Place& to, size_t next) const;

  const Device& device_;
  Pipelines& pipelines_;
  std::vector<Target> targets_;
  // Of the targets' bytes among those of a run, or of the first run alone, which lie before all.
  std::vector<uint64_t> offsets_;
  uint64_t bytes_ = 0, first_bytes_ = 0;  // of a run, and of the first alone
  std::unique_ptr<Buffer> buffer_;
  std::vector<Feed> feeds_;
  Feed end_;
};

}  // namespace satchel::vulkan
