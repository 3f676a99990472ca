// Dispatches that wait for one another by themselves, by counters in the device's memory: see
// shaders/turns.glsl. A Vulkan device promises neither that workgroups begin in the order of their
// dispatches nor that one which waits lets others go on, so a device is tried before it is trusted,
// nobody waits for ever, and whoever waited in vain is told of.
#pragma once

#include <cstring>

#include "buffer.h"

namespace satchel::vulkan {

class Pipelines;

// Counters of the turns of some commands, zero whenever these begin.
class Turns {
 public:
  static constexpr uint32_t kMost = 1024;
  explicit Turns(const Device& device) : counters_(device, (kMost + 1) * kLine, Where::upload) {
    clear();
  }

  Place counters() const { return {counters_.handle(), 0, counters_.size()}; }
  // Where a turn's counter is.
  static uint32_t word_of(uint32_t turn) { return (turn + 1) * kLine / sizeof(uint32_t); }
  bool waited_in_vain() const { return *reinterpret_cast<const uint32_t*>(counters_.data()) != 0; }
  void clear() { std::memset(counters_.data(), 0, counters_.size()); }

 private:
  // Bytes; before the first one's line there is that of the sign that somebody waited in vain.
  static constexpr uint32_t kLine = 128;
  Buffer counters_;
};

// Whether turns work on a device: found by trying, in about a millisecond.
// SATCHEL_VULKAN_WITHOUT=turns leaves them unused.
bool can_take_turns(Device& device, Pipelines& pipelines);

}  // namespace satchel::vulkan
