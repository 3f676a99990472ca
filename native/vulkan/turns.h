// Dispatches that wait for one another by themselves, value by value: see shaders/turns.glsl. A
// Vulkan device promises neither that workgroups begin in the order of their dispatches nor that
// one which waits lets others go on, so a device is tried before it is trusted, nobody waits for
// ever, and whoever waited in vain is told of.
#pragma once

#include <cstring>

#include "buffer.h"

namespace satchel::vulkan {

class Pipelines;

// Whether somebody has waited in vain, of some commands.
class Turns {
 public:
  explicit Turns(const Device& device) : sign_(device, sizeof(uint32_t), Where::upload) { clear(); }

  Place sign() const { return {sign_.handle(), 0, sign_.size()}; }
  bool waited_in_vain() const { return *reinterpret_cast<const uint32_t*>(sign_.data()) != 0; }
  void clear() { std::memset(sign_.data(), 0, sign_.size()); }

 private:
  Buffer sign_;
};

// What a place holds before its value is there: NOT_YET of shaders/turns.glsl.
inline constexpr uint32_t kNotYet = 0xFFFFFFFF;

// Whether turns work on a device: found by trying, in about a millisecond.
// SATCHEL_VULKAN_WITHOUT=turns leaves them unused.
bool can_take_turns(Device& device, Pipelines& pipelines);

}  // namespace satchel::vulkan
