// What a zlib stream holds (RFC 1950 and 1951), as much as is asked for at a time.
#pragma once

#include <array>

#include "image.h"

namespace satchel::vision {

// A prefix code of up to 15 bits.
class PrefixCode {
 public:
  // The length of each symbol's code; 0 for one that has none. Throws ImageError.
  void build(std::span<const uint8_t> lengths);

  static constexpr int kFastBits = 10;
  struct Entry {
    uint16_t symbol;
    uint8_t length;  // 0: longer than the fast table's bits, or no code at all
  };
  const Entry& fast(uint32_t bits) const { return fast_[bits & ((1u << kFastBits) - 1)]; }
  // The same for any code, from 15 bits of which the first is the lowest; length 0: there is none.
  Entry slow(uint32_t bits) const;

 private:
  std::array<Entry, 1 << kFastBits> fast_{};
  std::array<uint16_t, 16> counts_{};
  std::array<uint16_t, 288> symbols_{};  // by the length of their code
};

class Inflater {
 public:
  explicit Inflater(Bytes stream);

  // Throws ImageError if the stream ends before, or is damaged.
  void read(std::span<uint8_t> to);
  // When all is read that was wanted: checks the sum, if the stream ends here.
  void finish();

 private:
  enum class Block { none, stored, coded };

  bool next(uint8_t& byte);  // false at the end
  void put(uint8_t byte);
  void begin_block();
  void read_codes();
  uint32_t symbol(const PrefixCode& code);
  void fill();
  uint32_t peek(int count);
  void drop(int count);
  uint32_t take(int count);

  static constexpr size_t kWindow = 1 << 15;

  Bytes stream_;
  size_t place_ = 0;
  uint64_t buffer_ = 0;
  int held_ = 0;
  Block block_ = Block::none;
  bool last_ = false;
  uint32_t stored_left_ = 0, copy_left_ = 0, distance_ = 0;
  PrefixCode literals_, distances_;
  std::vector<uint8_t> window_ = std::vector<uint8_t>(kWindow);
  uint64_t produced_ = 0;
  uint32_t sum_a_ = 1, sum_b_ = 0;
};

}  // namespace satchel::vision
