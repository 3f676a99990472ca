// libvulkan, opened when it is asked for, and the devices that it knows.
#pragma once

#include <string>
#include <vector>

#include "api.h"

namespace satchel::vulkan {

// What a device can do beyond the least, and shaders make use of where it is there.
struct Features {
  bool subgroup_sums = false;
  bool integer_dot = false;         // products of four bytes at once
  bool cooperative_matrix = false;  // 16 x 16 x 16 of halves, summed up in floats, by subgroups
  bool cooperative_bytes = false;   // and 16 x 16 x 32 of signed bytes
  uint32_t subgroup = 0;            // threads
  // Memory of the host can be the device's own without a copy, from multiples of this on; 0: not,
  // or the two have none in common.
  uint64_t import_step = 0;
};

inline constexpr const char* kCooperativeMatrixExtension = "VK_KHR_cooperative_matrix";
inline constexpr const char* kHostMemoryExtension = "VK_EXT_external_memory_host";
inline constexpr const char* kMemoryBudgetExtension = "VK_EXT_memory_budget";

// The features that shaders may use, chained together, to ask for or to enable.
struct EnabledFeatures {
  explicit EnabledFeatures(bool with_matrices) {
    head.pNext = &storage;
    storage.pNext = &halves;
    halves.pNext = &model;
    model.pNext = &dot;
    if (with_matrices) dot.pNext = &matrix;
  }
  EnabledFeatures(const EnabledFeatures&) = delete;

  VkPhysicalDeviceFeatures2 head;
  VkPhysicalDevice16BitStorageFeatures storage;
  VkPhysicalDeviceShaderFloat16Int8Features halves;
  VkPhysicalDeviceVulkanMemoryModelFeatures model;
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot;
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
};

// What the shaders rely on beyond the least that the specification promises is asked for here.
struct DeviceInfo {
  VkPhysicalDevice handle;
  VkPhysicalDeviceProperties properties;
  VkPhysicalDeviceMemoryProperties memory;
  uint32_t queue_family;
  Features features;
  // What this process may still take of each heap; its size where the driver does not tell.
  uint64_t left[16];

  std::string name() const { return properties.deviceName; }
  const char* type() const;
  std::string api_version() const;
  uint64_t memory_bytes() const;  // of the largest heap that is its own
  uint64_t memory_left() const;   // of it, for this process
  bool shares_memory() const;     // all that there is, with the host
  // The most bytes of a buffer that a shader sees at once; SATCHEL_VULKAN_BINDING makes it less.
  uint64_t largest_binding() const;

 private:
  const VkMemoryHeap* own_heap() const;
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
  GetInstanceProcAddr find_ = nullptr;
  Features features_of(VkPhysicalDevice device, uint32_t version) const;
  bool has_extension(VkPhysicalDevice device, const char* name) const;
  void find_memory(DeviceInfo& info) const;

  uint32_t version_;  // of Vulkan, the highest that loader and code know
  InstanceFunctions functions_;
};

// SATCHEL_VULKAN_WITHOUT=integer_dot,turns leaves features unused, for tests.
bool is_unwanted(const char* feature);

// Whether this process was forked from one that uses Vulkan: drivers have threads, which are not
// here, so that nothing of theirs can be used or taken down.
bool is_forked();
// Throws ExecutionError if it was.
void require_no_fork();

// Throws ExecutionError if something did not succeed.
void require_success(VkResult result, const std::string& what);

}  // namespace satchel::vulkan
