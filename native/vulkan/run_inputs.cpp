#include "run_inputs.h"

#include <array>
#include <cstring>
#include <iterator>

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
  if (!record_regions(*feed.recorder, run)) {
    for (size_t i = 0; i < targets_.size(); ++i) {
      const Target& target = targets_[i];
      if (run > 0 && target.only_first) continue;
      feed.recorder->copy({buffer_->handle(), place_of(run, i), target.to.size}, target.to);
    }
  }
  return feed.commands = feed.recorder->finish("inputs", false);
}

// By one dispatch, which takes less time than copies do; false if it cannot see all.
bool RunInputs::record_regions(Recorder& recorder, size_t run) const {
  struct Region {
    uint32_t from, to, words, is_second;
  };
  struct {
    Region regions[7];
  } push{};
  std::array<View, 2> views;
  uint32_t count = 0;
  const Place all{buffer_->handle(), 0, buffer_->size()};
  const View from = recorder.view(all);
  std::array<VkBuffer, 2> buffers{};
  std::array<Place, 2> seen;
  for (size_t i = 0; i < targets_.size(); ++i) {
    const Target& target = targets_[i];
    if (run > 0 && target.only_first) continue;
    const size_t which = buffers[0] == nullptr || buffers[0] == target.to.buffer ? 0 : 1;
    if (buffers[which] && buffers[which] != target.to.buffer) return false;
    seen[which] = buffers[which] ? around(seen[which], target.to) : target.to;
    buffers[which] = target.to.buffer;
    if (count == std::size(push.regions) || target.to.size % 4 != 0) return false;
    push.regions[count++] = {
        static_cast<uint32_t>(place_of(run, i) / 4), static_cast<uint32_t>(target.to.offset / 4),
        static_cast<uint32_t>(target.to.size / 4), static_cast<uint32_t>(which)};
  }
  for (size_t i = 0; i < views.size(); ++i)
    views[i] = recorder.view(buffers[i] ? seen[i] : seen[0]);
  for (uint32_t i = 0; i < count; ++i) {
    const View& view = views[push.regions[i].is_second];
    push.regions[i].to -= static_cast<uint32_t>(view.offset / 4);
  }
  recorder.dispatch("run_inputs", {}, {from, written(views[0]), written(views[1])}, push, {count});
  return true;
}

VkCommandBuffer RunInputs::end() {
  if (end_.commands) return end_.commands;
  end_.recorder = std::make_unique<Recorder>(device_, pipelines_);
  end_.recorder->begin();
  return end_.commands = end_.recorder->finish("a chain");
}

}  // namespace satchel::vulkan
