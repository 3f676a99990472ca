#include "turns.h"

#include <cstring>

#include "../runtime/errors.h"
#include "recorder.h"

namespace satchel::vulkan {

namespace {

constexpr uint32_t kTurns = 64, kGroups = 256, kThreads = 256;

// Graphics cards gain by it, and software is where it is tested; others share their memory's rate
// with whoever looks for a value.
bool is_of_a_kind(const DeviceInfo& info) {
  const VkPhysicalDeviceType type = info.properties.deviceType;
  return info.features.integer_dot && !is_unwanted("turns") &&
         (type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU || type == VK_PHYSICAL_DEVICE_TYPE_CPU);
}

}  // namespace

bool can_take_turns(Device& device, Pipelines& pipelines) {
  if (!is_of_a_kind(device.info())) return false;
  Turns turns(device);
  constexpr uint64_t bytes = uint64_t{kGroups} * kThreads * sizeof(uint32_t);  // of a turn
  const Buffer numbers(device, kTurns * bytes, Where::device);
  const Buffer errors(device, sizeof(uint32_t), Where::upload);
  std::memset(errors.data(), 0, sizeof(uint32_t));
  Recorder recorder(device, pipelines);
  recorder.set_turns(&turns);
  const Place all[] = {{numbers.handle(), 0, numbers.size()}};
  recorder.begin(all);
  const auto of_turn = [&](uint32_t turn) {
    return recorder.view({numbers.handle(), turn * bytes, bytes});
  };
  const View wrong = recorder.view({errors.handle(), 0, errors.size()});
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    const struct {
      uint32_t number;
    } push{turn};
    const View before = of_turn(turn > 0 ? turn - 1 : kTurns - 1);
    recorder.dispatch("turns_try", {}, {awaited(before), written(of_turn(turn)), wrong}, push,
                      {kGroups});
  }
  const VkCommandBuffer commands = recorder.finish("turns");
  device.submit({&commands, 1}, "turns");
  return !turns.waited_in_vain() && *reinterpret_cast<const uint32_t*>(errors.data()) == 0;
}

}  // namespace satchel::vulkan
