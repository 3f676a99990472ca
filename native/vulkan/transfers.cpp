#include "transfers.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace satchel::vulkan {

namespace {

constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
constexpr uint64_t kStep = 16;  // places in a piece

}  // namespace

Transfers::~Transfers() {
  settle();
  if (device_.is_abandoned()) return;
  for (const Piece& piece : ring_) {
    if (piece.bytes) device_.destroy(piece.task);
  }
}

Transfers::Piece& Transfers::filling() {
  if (ring_[turn_].used == kPieceBytes) {
    start(ring_[turn_]);
    turn_ = (turn_ + 1) % ring_.size();
  }
  Piece& piece = ring_[turn_];
  if (!piece.bytes) {
    auto bytes = std::make_unique<Buffer>(device_, kPieceBytes, Where::host);
    piece.task = device_.make_task();
    piece.bytes = std::move(bytes);
  }
  wait(piece);
  return piece;
}

void Transfers::send(const Place& to, const uint8_t* from) {
  for (uint64_t done = 0; done < to.size;) {
    Piece& piece = filling();
    const uint64_t bytes = std::min(kPieceBytes - piece.used, to.size - done);
    std::memcpy(piece.bytes->data() + piece.used, from + done, bytes);
    piece.copies.push_back({to.buffer, {piece.used, to.offset + done, bytes}});
    piece.used = std::min(round_up(piece.used + bytes, kStep), kPieceBytes);
    done += bytes;
  }
}

void Transfers::start(Piece& piece) {
  const std::vector<Copy> copies = std::move(piece.copies);
  piece.copies.clear();
  piece.used = 0;
  if (copies.empty()) return;
  device_.start(
      piece.task,
      [&](VkCommandBuffer commands) {
        for (const Copy& copy : copies)
          device_->vkCmdCopyBuffer(commands, piece.bytes->handle(), copy.to, 1, &copy.where);
        device_.barrier(commands);  // for what follows, which nobody need wait for
      },
      "copying to it");
  piece.is_under_way = true;
}

void Transfers::wait(Piece& piece) {
  if (!std::exchange(piece.is_under_way, false)) return;
  device_.wait(piece.task, "copying to it");
}

void Transfers::wait() {
  start(ring_[turn_]);
  for (Piece& piece : ring_) wait(piece);
}

void Transfers::settle() noexcept {
  for (Piece& piece : ring_) {
    piece.copies.clear();
    piece.used = 0;
    try {
      wait(piece);
    } catch (const std::exception&) {  // it was told when it happened, or nobody asks any more
    }
  }
}

void Transfers::read(const Place& from, uint8_t* to) {
  wait();
  for (uint64_t done = 0; done < from.size; done += kPieceBytes) {
    const Buffer& bytes = *filling().bytes;
    const uint64_t count = std::min(kPieceBytes, from.size - done);
    device_.run(
        [&](VkCommandBuffer commands) {
          const VkBufferCopy piece{from.offset + done, 0, count};
          device_->vkCmdCopyBuffer(commands, from.buffer, bytes.handle(), 1, &piece);
        },
        "copying from it");
    std::memcpy(to + done, bytes.data(), count);
  }
}

}  // namespace satchel::vulkan
