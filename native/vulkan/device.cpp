#include "device.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "../runtime/errors.h"

namespace satchel::vulkan {

namespace {

// Far more than a step takes, on software drivers too.
constexpr double kPatience = 300;  // seconds

uint64_t patience_in_nanoseconds() {
  const char* told = std::getenv("SATCHEL_VULKAN_PATIENCE");
  const double seconds = told ? std::strtod(told, nullptr) : kPatience;
  return static_cast<uint64_t>(std::clamp(seconds, 0.0, 1e6) * 1e9);
}

// When a process ends, its driver is taken down, and crashes if it is still at work. So work that
// nobody waits for any more gets a last while then.
constexpr uint64_t kLastWhile = 5'000'000'000;  // nanoseconds

struct Unfinished {
  decltype(DeviceFunctions::vkWaitForFences) wait;
  VkDevice device;
  VkFence fence;
};

void wait_for_unfinished(const Unfinished* added) {
  static std::mutex mutex;
  static std::vector<Unfinished>* all = nullptr;  // not freed: it is read at the very end
  const std::lock_guard lock(mutex);
  if (added == nullptr) {
    for (const Unfinished& one : *all) one.wait(one.device, 1, &one.fence, 1, kLastWhile);
    return;
  }
  if (all == nullptr) {
    all = new std::vector<Unfinished>();
    std::atexit([] { wait_for_unfinished(nullptr); });
  }
  all->push_back(*added);
}

}  // namespace

Device::Device(const DeviceInfo& info) : info_(info) {
  const InstanceFunctions& instance = Library::get().functions();
  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue;
  queue.queueFamilyIndex = info.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo create;
  create.queueCreateInfoCount = 1;
  create.pQueueCreateInfos = &queue;
  const Features& wanted = info.features;
  EnabledFeatures enabled(wanted.cooperative_matrix);
  enabled.dot.shaderIntegerDotProduct = wanted.integer_dot;
  if (wanted.cooperative_matrix) {
    enabled.matrix.cooperativeMatrix = enabled.halves.shaderFloat16 = 1;
    enabled.halves.shaderInt8 = wanted.cooperative_bytes;
    enabled.storage.storageBuffer16BitAccess = enabled.model.vulkanMemoryModel = 1;
    create.enabledExtensionCount = 1;
    create.ppEnabledExtensionNames = &kCooperativeMatrixExtension;
  }
  if (wanted.integer_dot || wanted.cooperative_matrix) create.pNext = &enabled.head;
  require_success(instance.vkCreateDevice(info.handle, &create, nullptr, &device_),
                  "opening " + info.name());
#define LOAD(result, name, parameters) \
  functions_.name =                    \
      reinterpret_cast<decltype(functions_.name)>(instance.vkGetDeviceProcAddr(device_, #name));
  SATCHEL_DEVICE_FUNCTIONS(LOAD)
#undef LOAD
  functions_.vkGetDeviceQueue(device_, info.queue_family, 0, &queue_);
  try {
    VkCommandPoolCreateInfo pool;
    pool.queueFamilyIndex = info.queue_family;
    require_success(functions_.vkCreateCommandPool(device_, &pool, nullptr, &pool_), "a pool");
    VkCommandBufferAllocateInfo commands;
    commands.commandPool = pool_;
    commands.commandBufferCount = 1;
    require_success(functions_.vkAllocateCommandBuffers(device_, &commands, &commands_),
                    "a command buffer");
    const VkFenceCreateInfo fence;
    require_success(functions_.vkCreateFence(device_, &fence, nullptr, &fence_), "a fence");
  } catch (...) {
    close();
    throw;
  }
}

Device::~Device() { close(); }

void Device::close() {
  if (abandoned_) return;
  if (!lost_) functions_.vkDeviceWaitIdle(device_);
  functions_.vkDestroyFence(device_, fence_, nullptr);
  functions_.vkDestroyCommandPool(device_, pool_, nullptr);
  functions_.vkDestroyDevice(device_, nullptr);
}

void Device::run(const std::function<void(VkCommandBuffer)>& record, const char* what) {
  if (lost_) require_success(VK_ERROR_DEVICE_LOST, what);
  require_success(functions_.vkResetCommandPool(device_, pool_, 0), what);
  const VkCommandBufferBeginInfo begin;
  require_success(functions_.vkBeginCommandBuffer(commands_, &begin), what);
  record(commands_);
  finish(commands_, what);
  submit({&commands_, 1}, what);
}

void Device::finish(VkCommandBuffer commands, const char* what, bool for_host) const {
  VkMemoryBarrier to_host;
  to_host.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  to_host.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
  if (for_host) {
    functions_.vkCmdPipelineBarrier(
        commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
        VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, nullptr, 0, nullptr);
  }
  require_success(functions_.vkEndCommandBuffer(commands), what);
}

void Device::submit(std::span<const VkCommandBuffer> commands, const char* what) {
  if (lost_) require_success(VK_ERROR_DEVICE_LOST, what);
  VkSubmitInfo submit;
  submit.commandBufferCount = static_cast<uint32_t>(commands.size());
  submit.pCommandBuffers = commands.data();
  const VkResult begun = functions_.vkQueueSubmit(queue_, 1, &submit, fence_);
  lost_ = begun == VK_ERROR_DEVICE_LOST;
  require_success(begun, what);
  const VkResult done =
      functions_.vkWaitForFences(device_, 1, &fence_, 1, patience_in_nanoseconds());
  // Whatever keeps the host from waiting, the device may still be at work.
  abandoned_ = done != VK_SUCCESS && done != VK_ERROR_DEVICE_LOST;
  lost_ = done != VK_SUCCESS;
  if (abandoned_) {
    const Unfinished left{functions_.vkWaitForFences, device_, fence_};
    wait_for_unfinished(&left);
  }
  require_success(done, what);
  const VkResult reset = functions_.vkResetFences(device_, 1, &fence_);
  lost_ = reset != VK_SUCCESS;  // nothing can be waited for any more
  require_success(reset, what);
}

void Device::barrier(VkCommandBuffer commands) const {
  constexpr VkFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  VkMemoryBarrier memory;
  memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                         VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  functions_.vkCmdPipelineBarrier(commands, stages, stages, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

uint32_t Device::memory_type(uint32_t allowed, VkFlags wanted, VkFlags liked) const {
  for (const VkFlags flags : {wanted | liked, wanted}) {
    for (uint32_t i = 0; i < info_.memory.memoryTypeCount; ++i) {
      const VkFlags has = info_.memory.memoryTypes[i].propertyFlags;
      if ((allowed >> i & 1) && (has & flags) == flags) return i;
    }
  }
  throw ExecutionError("on the GPU: " + info_.name() + " has no memory for buffers");
}

}  // namespace satchel::vulkan
