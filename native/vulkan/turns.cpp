#include "turns.h"

#include <cstring>

#include "../runtime/errors.h"
#include "recorder.h"

namespace satchel::vulkan {

namespace {

constexpr uint32_t kTurns = 64, kGroups = 256, kThreads = 256, kErrors = 64;  // words of the last

// Graphics cards gain by it, and software is where it is tested; others share their memory's rate
// with whoever looks at a counter.
bool is_of_a_kind(const DeviceInfo& info) {
  const VkPhysicalDeviceType type = info.properties.deviceType;
  return info.features.integer_dot && !is_unwanted("turns") &&
         (type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU || type == VK_PHYSICAL_DEVICE_TYPE_CPU);
}

// The device's own memory, which the host looks into.
bool has_memory_for_both(const DeviceInfo& info) {
  constexpr VkFlags both = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                           VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                           VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  for (uint32_t i = 0; i < info.memory.memoryTypeCount; ++i) {
    if ((info.memory.memoryTypes[i].propertyFlags & both) == both) return true;
  }
  return false;
}

}  // namespace

bool can_take_turns(Device& device, Pipelines& pipelines) {
  if (!is_of_a_kind(device.info()) || !has_memory_for_both(device.info())) return false;
  Turns turns(device);
  constexpr uint64_t bytes = (kErrors + 2 * kGroups * kThreads) * sizeof(uint32_t);
  Buffer numbers(device, bytes, Where::upload);
  std::memset(numbers.data(), 0, kErrors * sizeof(uint32_t));
  Recorder recorder(device, pipelines);
  recorder.set_turns(&turns);
  recorder.begin();
  const View view = recorder.view({numbers.handle(), 0, bytes});
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    const struct {
      uint32_t number;
    } push{turn};
    recorder.dispatch("turns_try", {}, {written(view)}, push, {kGroups});
  }
  const VkCommandBuffer commands = recorder.finish("turns");
  device.submit({&commands, 1}, "turns");
  return !turns.waited_in_vain() && *reinterpret_cast<const uint32_t*>(numbers.data()) == 0;
}

}  // namespace satchel::vulkan
