// libvulkan, opened when it is asked for, and the devices that it knows.
#pragma once

#include <string>
#include <vector>

#include "api.h"

namespace satchel::vulkan {

// What the shaders rely on beyond the least that the specification promises is asked for here.
struct DeviceInfo {
  VkPhysicalDevice handle;
  VkPhysicalDeviceProperties properties;
  VkPhysicalDeviceMemoryProperties memory;
  uint32_t queue_family;

  std::string name() const { return properties.deviceName; }
  const char* type() const;
  std::string api_version() const;
  uint64_t memory_bytes() const;  // of the largest heap that is its own
  // The most bytes of a buffer that a shader sees at once; SATCHEL_VULKAN_BINDING makes it less.
  uint64_t largest_binding() const;
};

class Library {
 public:
  // Throws ExecutionError that says what is missing.
  static const Library& get();

  const InstanceFunctions& functions() const { return functions_; }
  // Devices with Vulkan 1.1 and a queue that computes: GPUs before software, else as they come.
  std::vector<DeviceInfo> devices() const;

 private:
  Library();

  VkInstance instance_ = nullptr;
  InstanceFunctions functions_;
};

// Throws ExecutionError if something did not succeed.
void require_success(VkResult result, const std::string& what);

}  // namespace satchel::vulkan
