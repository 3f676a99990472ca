#include "buffer.h"

#include <algorithm>

#include "../runtime/errors.h"
#include "transfers.h"

namespace satchel::vulkan {

namespace {

constexpr uint64_t kBlockBytes = uint64_t{64} << 20;
constexpr uint64_t kFirstStateBytes = uint64_t{1} << 16;

}  // namespace

void Buffer::create(const void* next) {
  VkBufferCreateInfo create;
  create.pNext = next;
  create.size = size_;
  create.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  require_success(device_->vkCreateBuffer(device_.handle(), &create, nullptr, &buffer_), what());
}

VkResult Buffer::allocate(const void* next, uint64_t bytes, uint32_t type) {
  VkMemoryAllocateInfo allocate;
  allocate.pNext = next;
  allocate.allocationSize = bytes;
  allocate.memoryTypeIndex = type;
  const VkResult result = device_->vkAllocateMemory(device_.handle(), &allocate, nullptr, &memory_);
  if (result == VK_SUCCESS && !next) {
    allocated_ = bytes;
    type_ = type;
    device_.take_memory(type, bytes);
  }
  return result;
}

void Buffer::free() {
  device_->vkDestroyBuffer(device_.handle(), buffer_, nullptr);
  device_->vkFreeMemory(device_.handle(), memory_, nullptr);
  device_.give_memory(type_, allocated_);
}

std::string Buffer::what() const { return "a buffer of " + std::to_string(size_) + " bytes"; }

Buffer::Buffer(const Device& device, uint64_t bytes, Where where)
    : device_(device), size_(round_up(std::max<uint64_t>(bytes, 1), kOffsetStep)) {
  create(nullptr);
  try {
    VkMemoryRequirements needs;
    device->vkGetBufferMemoryRequirements(device.handle(), buffer_, &needs);
    constexpr VkFlags seen =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkFlags wanted = where == Where::device ? 0 : seen;
    const VkFlags liked = where == Where::host ? VK_MEMORY_PROPERTY_HOST_CACHED_BIT
                                               : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    const auto of_type = [&](VkFlags more) {
      return allocate(nullptr, needs.size, device.memory_type(needs.memoryTypeBits, wanted, more));
    };
    VkResult result = of_type(liked);
    // What of a device's memory the host sees may be little.
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY && where == Where::upload) result = of_type(0);
    require_success(result, what());
    require_success(device->vkBindBufferMemory(device.handle(), buffer_, memory_, 0), what());
    if (where != Where::device) {
      void* mapped = nullptr;
      require_success(device->vkMapMemory(device.handle(), memory_, 0, VK_WHOLE_SIZE, 0, &mapped),
                      what());
      mapped_ = static_cast<uint8_t*>(mapped);
    }
  } catch (...) {
    free();
    throw;
  }
  device.count_buffer();
}

Buffer::Buffer(const Device& device, const uint8_t* host, uint64_t bytes)
    : device_(device), size_(bytes) {
  const VkExternalMemoryBufferCreateInfo external;
  create(&external);
  try {
    VkMemoryRequirements needs;
    device->vkGetBufferMemoryRequirements(device.handle(), buffer_, &needs);
    if (needs.size > bytes) throw ExecutionError("on the GPU: " + what() + " takes more of them");
    VkMemoryHostPointerPropertiesEXT can_be;
    require_success(
        device->vkGetMemoryHostPointerPropertiesEXT(
            device.handle(), VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, host, &can_be),
        what());
    VkImportMemoryHostPointerInfoEXT import;
    import.pHostPointer = const_cast<uint8_t*>(host);  // which the device only reads
    const uint32_t type = device.memory_type(needs.memoryTypeBits & can_be.memoryTypeBits, 0, 0);
    require_success(allocate(&import, bytes, type), what());
    require_success(device->vkBindBufferMemory(device.handle(), buffer_, memory_, 0), what());
  } catch (...) {
    free();
    throw;
  }
  device.count_buffer();
}

Buffer::~Buffer() {
  if (!device_.is_abandoned()) free();
}

Weights::~Weights() { transfers_.settle(); }

void Weights::open(const uint8_t* bytes, uint64_t size) {
  left_ = size;
  const uint64_t step = device_.info().features.import_step;
  if (step == 0 || reinterpret_cast<uintptr_t>(bytes) % step != 0) return;
  const uint64_t whole = size / step * step;  // what lies behind is copied
  if (whole == 0) return;
  try {
    imported_ = std::make_unique<Buffer>(device_, bytes, whole);
    imported_from_ = bytes;
  } catch (const ExecutionError&) {
    // A driver may refuse what is mapped from a file: it is copied then.
  }
}

Place Weights::of(const uint8_t* bytes, uint64_t size) {
  // Addresses of one file: whether they lie in a part of it is a question of numbers.
  const uint64_t offset =
      reinterpret_cast<uintptr_t>(bytes) - reinterpret_cast<uintptr_t>(imported_from_);
  if (imported_ && offset < imported_->size() && size <= imported_->size() - offset)
    return {imported_->handle(), offset, size};
  const auto found = places_.find(bytes);
  if (found != places_.end()) return found->second;
  const uint64_t needed = round_up(size, kOffsetStep);
  make_room(needed);
  const Place place{blocks_.back()->handle(), used_, size};
  used_ += needed;
  left_ -= std::min(left_, needed);
  transfers_.send(place, bytes);
  return places_[bytes] = place;
}

std::optional<Place> Weights::together(std::span<const Piece> pieces) {
  uint64_t bytes = 0;
  for (const auto& [data, size] : pieces) bytes += round_up(size, kOffsetStep);
  const uint64_t most = device_.info().largest_binding() - kOffsetStep;
  if (bytes > most) return {};
  // Those that other layers have too may lie elsewhere.
  const bool are_new = !imported_ && std::ranges::none_of(pieces, [&](const Piece& piece) {
    return places_.contains(piece.first);
  });
  if (are_new) make_room(bytes);
  Place all = of(pieces[0].first, pieces[0].second);
  for (const auto& [data, size] : pieces) {
    const Place own = of(data, size);
    if (own.buffer != all.buffer) return {};
    all = around(all, own);
  }
  return all.size <= most ? std::optional(all) : std::nullopt;
}

void Weights::make_room(uint64_t bytes) {
  if (!blocks_.empty() && used_ + bytes <= blocks_.back()->size()) return;
  const uint64_t size = std::max(bytes, std::min(kBlockBytes, left_));
  blocks_.push_back(std::make_unique<Buffer>(device_, size, Where::device));
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
