#include "buffer.h"

#include <algorithm>
#include <cstring>

#include "../runtime/errors.h"

namespace satchel::vulkan {

namespace {

constexpr uint64_t kStagingBytes = uint64_t{16} << 20, kBlockBytes = uint64_t{64} << 20;
constexpr uint64_t kFirstStateBytes = uint64_t{1} << 16;

}  // namespace

Buffer::Buffer(const Device& device, uint64_t bytes, Where where)
    : device_(device), size_(round_up(std::max<uint64_t>(bytes, 1), kOffsetStep)) {
  const DeviceFunctions& f = device.functions();
  const std::string what = "a buffer of " + std::to_string(size_) + " bytes";
  VkBufferCreateInfo create;
  create.size = size_;
  create.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  require_success(f.vkCreateBuffer(device.handle(), &create, nullptr, &buffer_), what);
  try {
    VkMemoryRequirements needs;
    f.vkGetBufferMemoryRequirements(device.handle(), buffer_, &needs);
    VkMemoryAllocateInfo allocate;
    allocate.allocationSize = needs.size;
    constexpr VkFlags seen =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkFlags wanted = where == Where::device ? 0 : seen;
    const VkFlags liked = where == Where::host ? VK_MEMORY_PROPERTY_HOST_CACHED_BIT
                                               : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    allocate.memoryTypeIndex = device.memory_type(needs.memoryTypeBits, wanted, liked);
    VkResult result = f.vkAllocateMemory(device.handle(), &allocate, nullptr, &memory_);
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY && where == Where::upload) {
      // What of a device's memory the host sees may be little.
      allocate.memoryTypeIndex = device.memory_type(needs.memoryTypeBits, wanted, 0);
      result = f.vkAllocateMemory(device.handle(), &allocate, nullptr, &memory_);
    }
    require_success(result, what);
    require_success(f.vkBindBufferMemory(device.handle(), buffer_, memory_, 0), what);
    if (where != Where::device) {
      void* mapped = nullptr;
      require_success(f.vkMapMemory(device.handle(), memory_, 0, VK_WHOLE_SIZE, 0, &mapped), what);
      mapped_ = static_cast<uint8_t*>(mapped);
    }
  } catch (...) {
    f.vkDestroyBuffer(device.handle(), buffer_, nullptr);
    f.vkFreeMemory(device.handle(), memory_, nullptr);
    throw;
  }
  device.count_buffer();
}

Buffer::~Buffer() {
  if (device_.is_abandoned()) return;
  device_->vkDestroyBuffer(device_.handle(), buffer_, nullptr);
  device_->vkFreeMemory(device_.handle(), memory_, nullptr);
}

Buffer& Transfers::staging() {
  if (!staging_) staging_ = std::make_unique<Buffer>(device_, kStagingBytes, Where::host);
  return *staging_;
}

void Transfers::write(const Place& to, const uint8_t* from) {
  for (uint64_t done = 0; done < to.size; done += kStagingBytes) {
    const uint64_t bytes = std::min(kStagingBytes, to.size - done);
    std::memcpy(staging().data(), from + done, bytes);
    device_.run(
        [&](VkCommandBuffer commands) {
          const VkBufferCopy piece{0, to.offset + done, bytes};
          device_->vkCmdCopyBuffer(commands, staging().handle(), to.buffer, 1, &piece);
        },
        "copying to it");
  }
}

void Transfers::read(const Place& from, uint8_t* to) {
  for (uint64_t done = 0; done < from.size; done += kStagingBytes) {
    const uint64_t bytes = std::min(kStagingBytes, from.size - done);
    device_.run(
        [&](VkCommandBuffer commands) {
          const VkBufferCopy piece{from.offset + done, 0, bytes};
          device_->vkCmdCopyBuffer(commands, from.buffer, staging().handle(), 1, &piece);
        },
        "copying from it");
    std::memcpy(to + done, staging().data(), bytes);
  }
}

Place Weights::of(const uint8_t* bytes, uint64_t size) {
  const auto found = places_.find(bytes);
  if (found != places_.end()) return found->second;
  const uint64_t needed = round_up(size, kOffsetStep);
  make_room(needed);
  const Place place{blocks_.back()->handle(), used_, size};
  used_ += needed;
  transfers_.write(place, bytes);
  return places_[bytes] = place;
}

void Weights::make_room(uint64_t bytes) {
  if (!blocks_.empty() && used_ + bytes <= blocks_.back()->size()) return;
  blocks_.push_back(std::make_unique<Buffer>(device_, std::max(bytes, kBlockBytes), Where::device));
  used_ = 0;
}

DeviceState::DeviceState(Device& device, Transfers& transfers, uint64_t most_bytes)
    : device_(device), transfers_(transfers), most_(most_bytes) {
  reserve(std::min(most_, kFirstStateBytes));
}

void DeviceState::reserve(uint64_t end) {
  if (buffer_ && end <= buffer_->size()) return;
  const uint64_t grown = buffer_ ? 2 * buffer_->size() : 0;
  auto larger =
      std::make_unique<Buffer>(device_, std::max(end, std::min(grown, most_)), Where::device);
  device_.run(
      [&](VkCommandBuffer commands) {
        const uint64_t kept = buffer_ ? buffer_->size() : 0;
        const VkBufferCopy whole{0, 0, kept};
        if (kept > 0)
          device_->vkCmdCopyBuffer(commands, buffer_->handle(), larger->handle(), 1, &whole);
        if (kept < larger->size())
          device_->vkCmdFillBuffer(commands, larger->handle(), kept, larger->size() - kept, 0);
      },
      "a cache");
  buffer_ = std::move(larger);
}

void DeviceState::read(uint64_t offset, uint64_t bytes, uint8_t* to) const {
  const_cast<DeviceState*>(this)->reserve(offset + bytes);
  if (bytes > 0) transfers_.read({buffer_->handle(), offset, bytes}, to);
}

void DeviceState::write(uint64_t offset, uint64_t bytes, const uint8_t* from) {
  reserve(offset + bytes);
  if (bytes > 0) transfers_.write({buffer_->handle(), offset, bytes}, from);
}

void DeviceState::copy(uint64_t from, uint64_t to, uint64_t bytes) {
  reserve(std::max(from, to) + bytes);
  device_.run(
      [&](VkCommandBuffer commands) {
        const VkBufferCopy piece{from, to, bytes};
        device_->vkCmdCopyBuffer(commands, buffer_->handle(), buffer_->handle(), 1, &piece);
      },
      "copying a page");
}

void DeviceState::clear() {
  device_.run(
      [&](VkCommandBuffer commands) {
        device_->vkCmdFillBuffer(commands, buffer_->handle(), 0, VK_WHOLE_SIZE, 0);
      },
      "emptying a state");
}

}  // namespace satchel::vulkan
