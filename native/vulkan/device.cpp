#include "device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "../runtime/errors.h"

#ifdef __GLIBC__
#include <unistd.h>
#endif

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
// nobody waits for any more gets a last while then; if that is not enough, the process ends without
// taking anything down, where the system has a way.
constexpr uint64_t kLastWhile = 5'000'000'000;  // nanoseconds

struct Unfinished {
  decltype(DeviceFunctions::vkWaitForFences) wait;
  VkDevice device;
  VkFence fence;
};

// Not freed: it is read at the very end.
std::vector<Unfinished>& unfinished() {
  static auto* all = new std::vector<Unfinished>();
  return *all;
}

bool is_finished_at_last() {
  const uint64_t most = std::min(kLastWhile, patience_in_nanoseconds());
  return std::ranges::all_of(unfinished(), [&](const Unfinished& one) {
    return one.wait(one.device, 1, &one.fence, 1, most) == VK_SUCCESS;
  });
}

void add_unfinished(const Unfinished& one) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (unfinished().empty()) {
#ifdef __GLIBC__
    on_exit(
        [](int status, void*) {
          if (is_finished_at_last()) return;
          std::fflush(nullptr);
          _exit(status);
        },
        nullptr);
#else
    std::atexit([] { is_finished_at_last(); });
#endif
  }
  unfinished().push_back(one);
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
  std::vector<const char*> extensions;
  EnabledFeatures enabled(wanted.cooperative_matrix);
  enabled.dot.shaderIntegerDotProduct = wanted.integer_dot;
  if (wanted.cooperative_matrix) {
    enabled.matrix.cooperativeMatrix = enabled.halves.shaderFloat16 = 1;
    enabled.halves.shaderInt8 = wanted.cooperative_bytes;
    enabled.storage.storageBuffer16BitAccess = enabled.model.vulkanMemoryModel = 1;
    extensions.push_back(kCooperativeMatrixExtension);
  }
  if (wanted.import_step > 0) extensions.push_back(kHostMemoryExtension);
  create.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  create.ppEnabledExtensionNames = extensions.data();
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
    own_ = make_task();
  } catch (...) {
    close();
    throw;
  }
}

Device::Task Device::make_task() const {
  Task task;
  try {
    VkCommandPoolCreateInfo pool;
    pool.queueFamilyIndex = info_.queue_family;
    require_success(functions_.vkCreateCommandPool(device_, &pool, nullptr, &task.pool), "a pool");
    VkCommandBufferAllocateInfo commands;
    commands.commandPool = task.pool;
    commands.commandBufferCount = 1;
    require_success(functions_.vkAllocateCommandBuffers(device_, &commands, &task.commands),
                    "a command buffer");
    const VkFenceCreateInfo fence;
    require_success(functions_.vkCreateFence(device_, &fence, nullptr, &task.fence), "a fence");
  } catch (...) {
    destroy(task);
    throw;
  }
  return task;
}

void Device::destroy(const Task& task) const {
  functions_.vkDestroyFence(device_, task.fence, nullptr);
  functions_.vkDestroyCommandPool(device_, task.pool, nullptr);
}

Device::~Device() { close(); }

void Device::close() {
  if (is_abandoned()) return;
  if (!lost_) functions_.vkDeviceWaitIdle(device_);
  destroy(own_);
  functions_.vkDestroyDevice(device_, nullptr);
}

void Device::run(const Record& record, const char* what) {
  start(own_, record, what);
  wait(own_, what);
}

void Device::start(const Task& task, const Record& record, const char* what) {
  require_no_fork();
  if (lost_) require_success(VK_ERROR_DEVICE_LOST, what);
  require_success(functions_.vkResetCommandPool(device_, task.pool, 0), what);
  const VkCommandBufferBeginInfo begin;
  require_success(functions_.vkBeginCommandBuffer(task.commands, &begin), what);
  record(task.commands);
  finish(task.commands, what);
  start({&task.commands, 1}, task.fence, what);
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
  start(commands, own_.fence, what);
  wait(own_, what);
}

void Device::begin(std::span<const VkCommandBuffer> commands, const char* what) {
  start(commands, nullptr, what);
  has_begun_ = true;
}

void Device::start(std::span<const VkCommandBuffer> commands, VkFence fence, const char* what) {
  require_no_fork();
  if (lost_) require_success(VK_ERROR_DEVICE_LOST, what);
  VkSubmitInfo submit;
  submit.commandBufferCount = static_cast<uint32_t>(commands.size());
  submit.pCommandBuffers = commands.data();
  const VkResult begun = functions_.vkQueueSubmit(queue_, 1, &submit, fence);
  if (begun == VK_ERROR_DEVICE_LOST) lost_ = true;
  // Nobody is told of an error while what was begun is at work.
  if (begun != VK_SUCCESS && std::exchange(has_begun_, false)) functions_.vkDeviceWaitIdle(device_);
  require_success(begun, what);
}

void Device::wait(VkFence fence, const char* what) {
  const VkResult done =
      functions_.vkWaitForFences(device_, 1, &fence, 1, patience_in_nanoseconds());
  // Whatever keeps the host from waiting, the device may still be at work.
  if (done != VK_SUCCESS && done != VK_ERROR_DEVICE_LOST) {
    abandoned_ = true;
    add_unfinished({functions_.vkWaitForFences, device_, fence});
  }
  if (done != VK_SUCCESS) lost_ = true;
  has_begun_ = false;
  require_success(done, what);
  const VkResult reset = functions_.vkResetFences(device_, 1, &fence);
  if (reset != VK_SUCCESS) lost_ = true;  // nothing can be waited for any more
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
