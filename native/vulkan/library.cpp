#include "library.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#include "../runtime/errors.h"
#include "../runtime/process.h"

namespace satchel::vulkan {

namespace {

constexpr uint32_t kVersion11 = 1u << 22 | 1u << 12, kVersion13 = 1u << 22 | 3u << 12;

#ifdef _WIN32
constexpr const char* kLibrary = "vulkan-1.dll";
GetInstanceProcAddr find_entry() {
  HMODULE library = LoadLibraryA(kLibrary);
  return library ? reinterpret_cast<GetInstanceProcAddr>(
                       reinterpret_cast<void*>(GetProcAddress(library, "vkGetInstanceProcAddr")))
                 : nullptr;
}
#else
#ifdef __ANDROID__
constexpr const char* kLibrary = "libvulkan.so";
#else
constexpr const char* kLibrary = "libvulkan.so.1";
#endif
GetInstanceProcAddr find_entry() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  return library ? reinterpret_cast<GetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"))
                 : nullptr;
}
#endif

// The process that opened Vulkan first; 0: none.
std::atomic<int> opened_by{0};

int rank_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return 2;
    case VK_PHYSICAL_DEVICE_TYPE_OTHER:
      return 3;
    default:
      return 4;
  }
}

}  // namespace

bool is_unwanted(const char* feature) {
  const char* without = std::getenv("SATCHEL_VULKAN_WITHOUT");
  return without && std::strstr(without, feature);
}

const char* DeviceInfo::type() const {
  constexpr const char* names[] = {"GPU", "integrated GPU", "virtual GPU", "other", "software"};
  const int rank = rank_of(properties.deviceType);
  return names[rank];
}

std::string DeviceInfo::api_version() const {
  const uint32_t v = properties.apiVersion;
  return std::to_string(v >> 22 & 0x7F) + "." + std::to_string(v >> 12 & 0x3FF) + "." +
         std::to_string(v & 0xFFF);
}

const VkMemoryHeap* DeviceInfo::own_heap() const {
  const VkMemoryHeap* largest = nullptr;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = memory.memoryHeaps[i];
    const bool is_own = heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
    if (is_own && (!largest || heap.size > largest->size)) largest = &heap;
  }
  return largest;
}

uint64_t DeviceInfo::memory_bytes() const {
  const VkMemoryHeap* heap = own_heap();
  return heap ? heap->size : 0;
}

uint64_t DeviceInfo::memory_left() const {
  const VkMemoryHeap* heap = own_heap();
  return heap ? left[heap - memory.memoryHeaps] : 0;
}

bool DeviceInfo::shares_memory() const {
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    if (!(memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)) return false;
  }
  return true;
}

uint64_t DeviceInfo::largest_binding() const {
  uint64_t bytes = properties.limits.maxStorageBufferRange;
  if (const char* less = std::getenv("SATCHEL_VULKAN_BINDING"))
    bytes = std::clamp<uint64_t>(std::strtoull(less, nullptr, 10), 4096, bytes);
  return bytes;
}

bool is_forked() {
  const int process = opened_by;
  return process != 0 && process != this_process();
}

void require_no_fork() {
  if (is_forked()) {
    throw ExecutionError(
        "the GPU cannot be used in a process that was forked from one that uses it. Start it anew "
        "(multiprocessing's \"spawn\"), or use --target cpu");
  }
}

const Library& Library::get() {
  require_no_fork();
  // Never closed: drivers keep threads of their own that must not find it gone.
  static const Library* library = new Library();
  return *library;
}

Library::Library() {
  const GetInstanceProcAddr find = find_ = find_entry();
  if (!find) {
    throw ExecutionError(std::string("there is no Vulkan here: ") + kLibrary +
                         " was not found. Install it with your GPU's driver (Debian: libvulkan1, "
                         "and mesa-vulkan-drivers), or use --target cpu");
  }
  const auto create =
      reinterpret_cast<VkResult(SATCHEL_VKAPI*)(const VkInstanceCreateInfo*, A, VkInstance*)>(
          find(nullptr, "vkCreateInstance"));
  VkApplicationInfo application;
  application.pApplicationName = "satchel";
  const auto tell_version = reinterpret_cast<VkResult(SATCHEL_VKAPI*)(uint32_t*)>(
      find(nullptr, "vkEnumerateInstanceVersion"));
  if (!tell_version || tell_version(&version_) != VK_SUCCESS) version_ = kVersion11;
  version_ = std::min(version_, kVersion13);
  application.apiVersion = version_;
  VkInstanceCreateInfo info;
  info.pApplicationInfo = &application;
  const VkResult result =
      create ? create(&info, nullptr, &instance_) : VK_ERROR_INITIALIZATION_FAILED;
  if (result != VK_SUCCESS) {
    throw ExecutionError("Vulkan has no driver that can be used here (error " +
                         std::to_string(result) +
                         "). Install your GPU's (Debian: mesa-vulkan-drivers), or use "
                         "--target cpu");
  }
  opened_by = this_process();
#define LOAD(result, name, parameters)                                                   \
  functions_.name = reinterpret_cast<decltype(functions_.name)>(find(instance_, #name)); \
  if (!functions_.name) throw ExecutionError("this Vulkan has no " #name ": it is too old");
  SATCHEL_INSTANCE_FUNCTIONS(LOAD)
#undef LOAD
}

bool Library::has_extension(VkPhysicalDevice device, const char* name) const {
  uint32_t count = 0;
  functions_.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> extensions(count);
  functions_.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data());
  return std::ranges::any_of(extensions, [&](const VkExtensionProperties& extension) {
    return std::strcmp(extension.extensionName, name) == 0;
  });
}

void Library::find_memory(DeviceInfo& info) const {
  const bool tells_budget = has_extension(info.handle, kMemoryBudgetExtension);
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget;
  VkPhysicalDeviceMemoryProperties2 found;
  if (tells_budget) found.pNext = &budget;
  functions_.vkGetPhysicalDeviceMemoryProperties2(info.handle, &found);
  info.memory = found.memoryProperties;
  for (uint32_t i = 0; i < info.memory.memoryHeapCount; ++i) {
    const uint64_t size = info.memory.memoryHeaps[i].size,
                   most = tells_budget ? std::min(budget.heapBudget[i], size) : size;
    info.left[i] = most - std::min(most, budget.heapUsage[i]);
  }
}

Features Library::features_of(VkPhysicalDevice device, uint32_t version) const {
  Features found;
  VkPhysicalDeviceSubgroupProperties subgroup;
  VkPhysicalDeviceExternalMemoryHostPropertiesEXT host_memory;
  VkPhysicalDeviceProperties2 properties;
  properties.pNext = &subgroup;
  if (has_extension(device, kHostMemoryExtension) && !is_unwanted("host_memory"))
    subgroup.pNext = &host_memory;
  functions_.vkGetPhysicalDeviceProperties2(device, &properties);
  found.import_step = host_memory.minImportedHostPointerAlignment;
  found.subgroup = subgroup.subgroupSize;
  constexpr VkFlags arithmetic = 4, compute = VK_SHADER_STAGE_COMPUTE_BIT;
  found.subgroup_sums =
      (subgroup.supportedOperations & arithmetic) && (subgroup.supportedStages & compute);
  if (std::min(version, version_) < kVersion13) return found;

  const bool has_matrices = has_extension(device, kCooperativeMatrixExtension);
  EnabledFeatures all(has_matrices);
  functions_.vkGetPhysicalDeviceFeatures2(device, &all.head);
  found.integer_dot =
      found.subgroup_sums && all.dot.shaderIntegerDotProduct && !is_unwanted("integer_dot");
  if (!has_matrices || is_unwanted("cooperative_matrix") || !all.matrix.cooperativeMatrix ||
      !all.halves.shaderFloat16 || !all.storage.storageBuffer16BitAccess ||
      !all.model.vulkanMemoryModel || found.subgroup != 32)
    return found;
  const auto list = reinterpret_cast<VkResult(SATCHEL_VKAPI*)(VkPhysicalDevice, uint32_t*,
                                                              VkCooperativeMatrixPropertiesKHR*)>(
      find_(instance_, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  uint32_t count = 0;
  if (!list || list(device, &count, nullptr) != VK_SUCCESS) return found;
  std::vector<VkCooperativeMatrixPropertiesKHR> kinds(count);
  list(device, &count, kinds.data());
  const auto has = [&](uint32_t depth, int32_t type, int32_t sum) {
    return std::any_of(kinds.begin(), kinds.end(), [&](const VkCooperativeMatrixPropertiesKHR& k) {
      return k.MSize == 16 && k.NSize == 16 && k.KSize == depth && k.AType == type &&
             k.BType == type && k.CType == sum && k.ResultType == sum && k.scope == 3;
    });
  };
  constexpr int32_t f16 = 0, f32 = 1, s8 = 3, s32 = 5;
  found.cooperative_matrix = has(16, f16, f32);
  found.cooperative_bytes = found.cooperative_matrix && all.halves.shaderInt8 && has(32, s8, s32) &&
                            !is_unwanted("cooperative_bytes");
  return found;
}

std::vector<DeviceInfo> Library::devices() const {
  uint32_t count = 0;
  functions_.vkEnumeratePhysicalDevices(instance_, &count, nullptr);
  std::vector<VkPhysicalDevice> handles(count);
  if (count > 0) functions_.vkEnumeratePhysicalDevices(instance_, &count, handles.data());
  handles.resize(count);
  std::vector<DeviceInfo> found;
  for (const VkPhysicalDevice handle : handles) {
    DeviceInfo info{handle, {}, {}, UINT32_MAX, {}, {}};
    functions_.vkGetPhysicalDeviceProperties(handle, &info.properties);
    uint32_t families = 0;
    functions_.vkGetPhysicalDeviceQueueFamilyProperties(handle, &families, nullptr);
    std::vector<VkQueueFamilyProperties> queues(families);
    functions_.vkGetPhysicalDeviceQueueFamilyProperties(handle, &families, queues.data());
    for (uint32_t i = 0; i < families; ++i) {
      if (!(queues[i].queueFlags & VK_QUEUE_COMPUTE_BIT) || queues[i].queueCount == 0) continue;
      // One for computing alone is not held up by what is drawn.
      const bool alone = !(queues[i].queueFlags & VK_QUEUE_GRAPHICS_BIT);
      if (info.queue_family == UINT32_MAX || alone) info.queue_family = i;
      if (alone) break;
    }
    if (info.queue_family == UINT32_MAX || info.properties.apiVersion < kVersion11) continue;
    find_memory(info);
    info.features = features_of(handle, info.properties.apiVersion);
    if (!info.shares_memory()) info.features.import_step = 0;
    found.push_back(info);
  }
  std::stable_sort(found.begin(), found.end(), [](const DeviceInfo& a, const DeviceInfo& b) {
    return rank_of(a.properties.deviceType) < rank_of(b.properties.deviceType);
  });
  return found;
}

void require_success(VkResult result, const std::string& what) {
  if (result == VK_SUCCESS) return;
  const std::string where = "on the GPU: " + what + ": ";
  switch (result) {
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      throw ExecutionError(where + "its memory is full. Use a smaller context, or --target cpu");
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      throw ExecutionError(where + "this machine's memory is full");
    case VK_ERROR_DEVICE_LOST:
      throw ExecutionError(where +
                           "the device was lost (its driver has reset it). Open the "
                           "program again, or use --target cpu");
    case VK_TIMEOUT:
      throw ExecutionError(where +
                           "it does not answer. Open the program again, or use "
                           "--target cpu");
    default:
      throw ExecutionError(where + "error " + std::to_string(result));
  }
}

}  // namespace satchel::vulkan
