// Bytes on their way between the host's memory and the device's.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "buffer.h"

namespace satchel::vulkan {

// A ring of pieces: while the device takes one, the host fills the next, so that reading a file and
// sending it go on together. Many small arrays share a piece, because each costs a submission.
class Transfers {
 public:
  explicit Transfers(Device& device) : device_(device) {}
  ~Transfers();
  Transfers(const Transfers&) = delete;

  // The host has done its part when this returns; the bytes are there after `wait`.
  void send(const Place& to, const uint8_t* from);
  void wait();
  // Leaves nothing under way that names a buffer, whatever has failed before.
  void settle() noexcept;

  void write(const Place& to, const uint8_t* from) {
    send(to, from);
    wait();
  }
  void read(const Place& from, uint8_t* to);

 private:
  struct Copy {
    VkBuffer to;
    VkBufferCopy where;
  };
  struct Piece {
    std::unique_ptr<Buffer> bytes;  // null: not needed so far
    Device::Task task;
    std::vector<Copy> copies;
    uint64_t used = 0;
    bool is_under_way = false;
  };

  Piece& filling();  // with room for more
  void start(Piece& piece);
  void wait(Piece& piece);

  Device& device_;
  std::array<Piece, 3> ring_;
  size_t turn_ = 0;
};

}  // namespace satchel::vulkan
