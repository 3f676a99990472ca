#include "run_inputs.h"

#include <cstring>

namespace satchel::vulkan {

void RunInputs::set_targets(std::vector<Target> targets) {
  targets_ = std::move(targets);
  offsets_.clear();
  bytes_ = first_bytes_ = 0;
  for (const Target& target : targets_) {
    uint64_t& bytes = target.only_first ? first_bytes_ : bytes_;
    offsets_.push_back(bytes);
    bytes += round_up(target.to.size, kOffsetStep);
  }
  const uint64_t all = first_bytes_ + kMostRuns * bytes_;
  if (!buffer_ || buffer_->size() < all)
    buffer_ = std::make_unique<Buffer>(device_, all, Where::upload);
  for (Feed& feed : feeds_) feed.commands = nullptr;
}

uint64_t RunInputs::place_of(size_t run, size_t target) const {
  return offsets_[target] + (targets_[target].only_first ? 0 : first_bytes_ + run * bytes_);
}

bool RunInputs::are_together(size_t target, const Place& to, size_t next) const {
  const Place& other = targets_[next].to;
  return targets_[target].only_first == targets_[next].only_first && other.buffer == to.buffer &&
         other.offset == to.offset + offsets_[next] - offsets_[target];
}

void RunInputs::write(size_t run, size_t target, const uint8_t* bytes) {
  if (run > 0 && targets_[target].only_first) return;
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
    for (; end < targets_.size() && are_together(i, to, end); ++end)
      to = around(to, targets_[end].to);
    feed.recorder->copy({buffer_->handle(), place_of(run, i), to.size}, to);
  }
  return feed.commands = feed.recorder->finish("inputs", false);
}

VkCommandBuffer RunInputs::end(const Place& made, const Place& shown) {
  if (end_.commands) return end_.commands;
  end_.recorder = std::make_unique<Recorder>(device_, pipelines_);
  end_.recorder->begin();
  end_.recorder->copy(made, shown);
  return end_.commands = end_.recorder->finish("a chain");
}

}  // namespace satchel::vulkan
