// Buffers of a device, places in them, and memory that states lie in.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "../runtime/state_memory.h"
#include "device.h"

namespace satchel::vulkan {

// Offsets of bindings are multiples of this on every device.
inline constexpr uint64_t kOffsetStep = 256;
inline uint64_t round_up(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

// host: mapped, and read by the host; upload: mapped, and near to the device if it can be.
enum class Where { device, host, upload };

class Buffer {
 public:
  Buffer(const Device& device, uint64_t bytes, Where where);
  // The host's own memory, for the device to read, both multiples of the device's `import_step`.
  Buffer(const Device& device, const uint8_t* host, uint64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;

  VkBuffer handle() const { return buffer_; }
  uint64_t size() const { return size_; }
  uint8_t* data() const { return mapped_; }  // null where the host does not see it

 private:
  std::string what() const;
  void create(const void* next);
  void free();
  VkResult allocate(const void* next, uint64_t bytes, uint32_t type);

  const Device& device_;
  VkBuffer buffer_ = nullptr;
  VkDeviceMemory memory_ = nullptr;
  uint64_t size_, allocated_ = 0;
  uint32_t type_ = 0;  // of memory
  uint8_t* mapped_ = nullptr;
};

// Bytes in a buffer.
struct Place {
  VkBuffer buffer = nullptr;
  uint64_t offset = 0, size = 0;
};

// What both lie in, of one buffer, with what may lie between.
inline Place around(const Place& a, const Place& b) {
  const uint64_t begin = std::min(a.offset, b.offset);
  return {a.buffer, begin, std::max(a.offset + a.size, b.offset + b.size) - begin};
}

class Transfers;

// The weights that are in use. Where host and device share their memory, they are the file's own
// bytes, if the driver takes them. Else each is copied once, in blocks: devices take few
// allocations.
class Weights {
 public:
  Weights(Device& device, Transfers& transfers) : device_(device), transfers_(transfers) {}
  ~Weights();
  // Bytes of a file that stays mapped as long as this exists, up to the end of its last page: all
  // that will be asked for.
  void open(const uint8_t* bytes, uint64_t size);
  // The place of these bytes of the file, which are sent when they are asked for first: whoever
  // submits work waits for the transfers before.
  Place of(const uint8_t* bytes, uint64_t size);
  // Such bytes that a shader sees by one binding, with what lies between; none if they lie apart
  // already.
  using Piece = std::pair<const uint8_t*, uint64_t>;
  std::optional<Place> together(std::span<const Piece> pieces);

 private:
  // The next `bytes` that are asked for will lie in one buffer.
  void make_room(uint64_t bytes);

  Device& device_;
  Transfers& transfers_;
  std::unique_ptr<Buffer> imported_;
  const uint8_t* imported_from_ = nullptr;
  std::vector<std::unique_ptr<Buffer>> blocks_;
  uint64_t used_ = 0;  // of the last block
  uint64_t left_ = 0;  // of the file, at most
  std::map<const uint8_t*, Place> places_;
};

// A state. Its size is the most that it may be: memory is taken as it is used.
class DeviceState : public StateMemory {
 public:
  DeviceState(Device& device, Transfers& transfers, uint64_t most_bytes);

  // Memory for the bytes before `end`, zero where nothing was written. Not while commands that use
  // it are being recorded.
  void reserve(uint64_t end);
  Place place() const { return {buffer_->handle(), 0, buffer_->size()}; }

  void read(uint64_t offset, uint64_t bytes, uint8_t* to) const override;
  void write(uint64_t offset, uint64_t bytes, const uint8_t* from) override;
  void copy(uint64_t from, uint64_t to, uint64_t bytes) override;
  void clear() override;

 private:
  Device& device_;
  Transfers& transfers_;
  uint64_t most_;
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace satchel::vulkan
