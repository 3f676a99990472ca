// Random numbers: PCG64, seeded as numpy's Generator(PCG64(seed)) is, so that a
// seed means the same everywhere.
#pragma once

#include <cstdint>
#include <span>

namespace satchel::llm {

class Random {
 public:
  // A seed as words of 32 bits, the lowest first.
  explicit Random(std::span<const uint32_t> seed) {
    uint32_t pool[kPool];
    mix_entropy(seed, pool);
    uint64_t words[4];
    uint32_t constant = 0x8b51f9dd;
    for (int i = 0; i < 8; ++i) {
      uint32_t value = pool[i % kPool] ^ constant;
      constant *= 0x58f38ded;
      value *= constant;
      value ^= value >> 16;
      words[i / 2] = i % 2 == 0 ? value : words[i / 2] | uint64_t{value} << 32;
    }
    const Wide start = Wide{words[0]} << 64 | words[1];
    increment_ = (Wide{words[2]} << 64 | words[3]) << 1 | 1;
    step();
    state_ += start;
    step();
  }

  // From 0 to below 1.
  double next() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr int kPool = 4;

  static uint32_t hashed(uint32_t value, uint32_t* constant) {
    value ^= *constant;
    *constant *= 0x931e8875;
    value *= *constant;
    return value ^ value >> 16;
  }

  static uint32_t mixed(uint32_t x, uint32_t y) {
    const uint32_t value = x * 0xca01f9dd - y * 0x4973f715;
    return value ^ value >> 16;
  }

  static void mix_entropy(std::span<const uint32_t> seed, uint32_t* pool) {
    uint32_t constant = 0x43b0d7e5;
    for (size_t i = 0; i < kPool; ++i) pool[i] = hashed(i < seed.size() ? seed[i] : 0, &constant);
    for (size_t from = 0; from < kPool; ++from) {
      for (size_t to = 0; to < kPool; ++to) {
        if (from != to) pool[to] = mixed(pool[to], hashed(pool[from], &constant));
      }
    }
    for (size_t from = kPool; from < seed.size(); ++from) {
      for (size_t to = 0; to < kPool; ++to) {
        pool[to] = mixed(pool[to], hashed(seed[from], &constant));
      }
    }
  }

  void step() {
    state_ = state_ * (Wide{0x2360ED051FC65DA4} << 64 | 0x4385DF649FCCF645) + increment_;
  }

  uint64_t bits() {
    step();
    const auto value = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    return value >> turn | value << (-turn & 63);
  }

  Wide state_ = 0, increment_ = 0;
};

}  // namespace satchel::llm
