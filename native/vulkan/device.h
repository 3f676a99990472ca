// A device: its queue, its memory, and work that is waited for.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "library.h"

namespace satchel::vulkan {

class Device {
 public:
  explicit Device(const DeviceInfo& info);
  ~Device();
  Device(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  VkDevice handle() const { return device_; }
  const DeviceFunctions& functions() const { return functions_; }
  const DeviceFunctions* operator->() const { return &functions_; }

  using Record = std::function<void(VkCommandBuffer)>;
  // Records commands, runs them and waits, at most SATCHEL_VULKAN_PATIENCE seconds (300). Throws
  // ExecutionError; a device that was lost or does not answer stays so.
  void run(const Record& record, const char* what);

  // Commands that are run once, and waited for later.
  struct Task {
    VkCommandPool pool = nullptr;
    VkCommandBuffer commands = nullptr;
    VkFence fence = nullptr;
  };
  Task make_task() const;
  void destroy(const Task& task) const;
  void start(const Task& task, const Record& record, const char* what);
  void wait(const Task& task, const char* what) { wait(task.fence, what); }

  // The same in two steps, for commands that are run more than once. Where others follow that are
  // for the host, it need not wait for these.
  void finish(VkCommandBuffer commands, const char* what, bool for_host = true) const;
  void submit(std::span<const VkCommandBuffer> commands, const char* what);  // one by one
  // Commands that the next submit() waits for, too.
  void begin(std::span<const VkCommandBuffer> commands, const char* what);
  // Whether it may still be at work that nobody waits for any more, or is the parent's of a forked
  // process: what it uses is then left as it is, for good.
  bool is_abandoned() const { return abandoned_ || is_forked(); }
  // What was written so far can be read by what follows.
  void barrier(VkCommandBuffer commands) const;

  // How many buffers were ever made: commands that were recorded before name none that is gone.
  uint64_t buffers_made() const { return buffers_made_; }
  void count_buffer() const { ++buffers_made_; }

  // What its buffers take of its memory now, without those that are the file's own bytes.
  uint64_t memory_taken() const { return memory_taken_; }
  void take_memory(uint32_t type, uint64_t bytes) const {
    if (is_own(type)) memory_taken_ += bytes;
  }
  void give_memory(uint32_t type, uint64_t bytes) const {
    if (is_own(type)) memory_taken_ -= bytes;
  }

  // The kind of memory among `allowed` (bits) that has all of `wanted` and, if there is one, what
  // is `liked` too. Throws ExecutionError if there is none.
  uint32_t memory_type(uint32_t allowed, VkFlags wanted, VkFlags liked) const;

 private:
  void close();
  bool is_own(uint32_t type) const {
    return info_.memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  }
  void start(std::span<const VkCommandBuffer> commands, VkFence fence, const char* what);
  void wait(VkFence fence, const char* what);

  DeviceInfo info_;
  VkDevice device_ = nullptr;
  DeviceFunctions functions_;
  VkQueue queue_ = nullptr;
  Task own_;
  bool lost_ = false, abandoned_ = false;
  bool has_begun_ = false;  // work that nobody has waited for yet
  mutable uint64_t buffers_made_ = 0, memory_taken_ = 0;
};

}  // namespace satchel::vulkan
