#include "inflate.h"

#include <algorithm>

namespace satchel::vision {

namespace {

constexpr int kMostBits = 15;

[[noreturn]] void damaged(const char* what = "its compressed data are damaged") {
  throw ImageError(what);
}

uint32_t reversed(uint32_t code, int length) {
  uint32_t result = 0;
  for (int i = 0; i < length; ++i) result |= (code >> i & 1) << (length - 1 - i);
  return result;
}

}  // namespace

void PrefixCode::build(std::span<const uint8_t> lengths) {
  counts_.fill(0);
  fast_.fill({0, 0});
  for (const uint8_t length : lengths) ++counts_[length];
  counts_[0] = 0;
  int left = 1;  // codes that are still free
  std::array<uint32_t, 16> next_code{};
  std::array<uint16_t, 16> places{};
  uint32_t code = 0;
  for (int length = 1; length <= kMostBits; ++length) {
    left = left * 2 - counts_[length];
    if (left < 0) damaged();
    code = (code + counts_[length - 1]) << 1;
    next_code[length] = code;
    places[length] = static_cast<uint16_t>(places[length - 1] + counts_[length - 1]);
  }
  for (size_t symbol = 0; symbol < lengths.size(); ++symbol) {
    const int length = lengths[symbol];
    if (length == 0) continue;
    symbols_[places[length]++] = static_cast<uint16_t>(symbol);
    const uint32_t bits = reversed(next_code[length]++, length);
    if (length > kFastBits) continue;
    for (uint32_t i = bits; i < fast_.size(); i += 1u << length)
      fast_[i] = {static_cast<uint16_t>(symbol), static_cast<uint8_t>(length)};
  }
}

PrefixCode::Entry PrefixCode::slow(uint32_t bits) const {
  uint32_t code = 0, first = 0, index = 0;
  for (int length = 1; length <= kMostBits; ++length) {
    code = code << 1 | (bits >> (length - 1) & 1);
    first <<= 1;
    const uint32_t count = counts_[length];
    if (code - first < count) return {symbols_[index + code - first], static_cast<uint8_t>(length)};
    index += count;
    first += count;
  }
  return {0, 0};
}

Inflater::Inflater(Bytes stream) : stream_(stream) {
  const uint32_t method = take(8), flags = take(8);
  if ((method & 15) != 8 || (method << 8 | flags) % 31 != 0 || (flags & 32) != 0) damaged();
}

void Inflater::fill() {
  for (; held_ <= 56 && place_ < stream_.size(); held_ += 8)
    buffer_ |= static_cast<uint64_t>(stream_[place_++]) << held_;
}

// Behind the end there are zeros, which cannot be dropped.
uint32_t Inflater::peek(int count) {
  if (held_ < count) fill();
  return static_cast<uint32_t>(buffer_) & ((1u << count) - 1);
}

void Inflater::drop(int count) {
  if (count > held_) damaged("its data end too early");
  buffer_ >>= count;
  held_ -= count;
}

uint32_t Inflater::take(int count) {
  const uint32_t value = peek(count);
  drop(count);
  return value;
}

uint32_t Inflater::symbol(const PrefixCode& code) {
  const uint32_t bits = peek(kMostBits);
  PrefixCode::Entry entry = code.fast(bits);
  if (entry.length == 0) entry = code.slow(bits);
  if (entry.length == 0) damaged();
  drop(entry.length);
  return entry.symbol;
}

void Inflater::put(uint8_t byte) {
  window_[produced_++ % kWindow] = byte;
  sum_a_ = (sum_a_ + byte) % 65521;
  sum_b_ = (sum_b_ + sum_a_) % 65521;
}

void Inflater::begin_block() {
  last_ = take(1) != 0;
  switch (take(2)) {
    case 0: {
      drop(held_ % 8);
      stored_left_ = take(16);
      if ((stored_left_ ^ 0xFFFF) != take(16)) damaged();
      block_ = Block::stored;
      return;
    }
    case 1: {
      std::array<uint8_t, 288> lengths;
      std::fill_n(lengths.begin(), 144, uint8_t{8});
      std::fill_n(lengths.begin() + 144, 112, uint8_t{9});
      std::fill_n(lengths.begin() + 256, 24, uint8_t{7});
      std::fill_n(lengths.begin() + 280, 8, uint8_t{8});
      literals_.build(lengths);
      std::fill_n(lengths.begin(), 30, uint8_t{5});
      distances_.build(std::span(lengths).first(30));
      block_ = Block::coded;
      return;
    }
    case 2:
      read_codes();
      block_ = Block::coded;
      return;
    default:
      damaged();
  }
}

// The codes of a block, which are coded themselves.
void Inflater::read_codes() {
  static constexpr uint8_t kOrder[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                       11, 4,  12, 3, 13, 2, 14, 1, 15};
  const size_t literals = take(5) + 257, distances = take(5) + 1, codes = take(4) + 4;
  if (literals > 286 || distances > 30) damaged();
  std::array<uint8_t, 19> code_lengths{};
  for (size_t i = 0; i < codes; ++i) code_lengths[kOrder[i]] = static_cast<uint8_t>(take(3));
  PrefixCode code;
  code.build(code_lengths);
  std::array<uint8_t, 286 + 30> lengths{};
  for (size_t i = 0; i < literals + distances;) {
    const uint32_t found = symbol(code);
    if (found < 16) {
      lengths[i++] = static_cast<uint8_t>(found);
      continue;
    }
    if (found == 16 && i == 0) damaged();
    const uint8_t repeated = found == 16 ? lengths[i - 1] : uint8_t{0};
    const size_t times = found == 16 ? 3 + take(2) : found == 17 ? 3 + take(3) : 11 + take(7);
    if (times > literals + distances - i) damaged();
    std::fill_n(lengths.begin() + i, times, repeated);
    i += times;
  }
  literals_.build(std::span(lengths).first(literals));
  distances_.build(std::span(lengths).subspan(literals, distances));
}

bool Inflater::next(uint8_t& byte) {
  for (;;) {
    if (copy_left_ > 0) {
      --copy_left_;
      byte = window_[(produced_ - distance_) % kWindow];
      break;
    }
    if (block_ == Block::none) {
      if (last_) return false;
      begin_block();
    } else if (block_ == Block::stored) {
      if (stored_left_ == 0) {
        block_ = Block::none;
        continue;
      }
      --stored_left_;
      byte = static_cast<uint8_t>(take(8));
      break;
    } else {
      const uint32_t found = symbol(literals_);
      if (found < 256) {
        byte = static_cast<uint8_t>(found);
        break;
      }
      if (found == 256) {
        block_ = Block::none;
        continue;
      }
      // Lengths of 3 to 257 in steps that double every four symbols; the last is 258.
      const uint32_t step = found - 257;
      if (step > 28) damaged();
      if (step == 28) {
        copy_left_ = 258;
      } else if (step < 8) {
        copy_left_ = 3 + step;
      } else {
        const uint32_t extra = step / 4 - 1;
        copy_left_ = 3 + ((4 + step % 4) << extra) + take(static_cast<int>(extra));
      }
      const uint32_t far = symbol(distances_);
      if (far > 29) damaged();
      distance_ = 1 + far;
      if (far >= 4) {
        const uint32_t extra = far / 2 - 1;
        distance_ = 1 + ((2 + far % 2) << extra) + take(static_cast<int>(extra));
      }
      if (distance_ > produced_) damaged();
    }
  }
  put(byte);
  return true;
}

void Inflater::read(std::span<uint8_t> to) {
  for (uint8_t& byte : to) {
    if (!next(byte)) damaged("its data end too early");
  }
}

void Inflater::finish() {
  uint8_t surplus;
  if (next(surplus)) return;  // what lies behind the picture is of no use
  drop(held_ % 8);
  uint32_t sum = 0;
  for (int i = 0; i < 4; ++i) sum = sum << 8 | take(8);
  if (sum != (sum_b_ << 16 | sum_a_)) damaged();
}

}  // namespace satchel::vision
