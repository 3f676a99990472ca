#include "run_inputs.h"

#include <cstring>

namespace satchel::vulkan {

void RunInputs::set_targets(std::vector<Target> targets) {
  targets_ = std::move(targets);
  offsets_.clear();
  bytes_ = 0;
  for (const Target& target : targets_) {
    offsets_.push_back(bytes_);
    bytes_ += round_up(target.to.size, kOffsetStep);
  }
  if (!buffer_ || buffer_->size() < kMostRuns * bytes_)
    buffer_ = std::make_unique<Buffer>(device_, kMostRuns * bytes_, Where::upload);
  for (Feed& feed : feeds_) feed.commands = nullptr;
}

void RunInputs::write(size_t run, size_t target, const uint8_t* bytes) {
  std::memcpy(buffer_->data() + place_of(run, target), bytes, targets_[target].to.size);
}

VkCommandBuffer RunInputs::commands(size_t run) {
  while (feeds_.size() <= run)
    feeds_.push_back({std::make_unique<Recorder>(device_, pipelines_), nullptr});
  Feed& feed = feeds_[run];
  if (feed.commands) return feed.commands;
  feed.recorder->begin();
  // What lies side by side here and there goes together.
  for (size_t i = 0, end; i < targets_.size(); i = end) {
    end = i + 1;
    if (run > 0 && targets_[i].only_first) continue;
    Place to = targets_[i].to;
    while (end < targets_.size() && !(run > 0 && targets_[end].only_first) &&
           targets_[end].to.buffer == to.buffer &&
           targets_[end].to.offset == to.offset + offsets_[end] - offsets_[i]) {
      to = around(to, targets_[end].to);
      ++end;
    }
    feed.recorder->copy({buffer_->handle(), place_of(run, i), to.size}, to);
  }
  return feed.commands = feed.recorder->finish("inputs", false);
}

VkCommandBuffer RunInputs::end() {
  if (end_.commands) return end_.commands;
  end_.recorder = std::make_unique<Recorder>(device_, pipelines_);
  end_.recorder->begin();
  return end_.commands = end_.recorder->finish("a chain");
}

}  // namespace satchel::vulkan
