// Products of unsigned codes with signed weights, four outputs at a time. See dots_portable.h.
//
// Without the dot-product instructions, bytes are widened to 16 bits.
#pragma once

namespace satchel {
namespace {

constexpr int kIntegerRows = 2;
constexpr int kIntegerTiles = 1;
constexpr int32_t kCodeShift = 0;

struct Dots {
  int32x4_t low, high;  // outputs 0-1 and 2-3, two sums each
};
struct WeightStep {
  int16x8_t low, high;
};
using CodeStep = int16x8_t;

inline Dots dots_from(I sums) {
  const int32x4_t whole = (int32x4_t)sums, nothing = vdupq_n_s32(0);
  return {vzip1q_s32(whole, nothing), vzip2q_s32(whole, nothing)};
}
inline WeightStep load_weights(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  return {vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes))};
}
inline CodeStep broadcast_codes(const uint8_t* p) {
  uint32_t four;
  std::memcpy(&four, p, sizeof four);
  return vreinterpretq_s16_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four))));
}
// The products of an output with columns 0 and 2, and with 1 and 3.
inline int32x4_t add_pairs(int32x4_t sums, int16x8_t codes, int16x8_t weights) {
  const int32x4_t first = vmull_s16(vget_low_s16(codes), vget_low_s16(weights));
  const int32x4_t second = vmull_s16(vget_high_s16(codes), vget_high_s16(weights));
  return vaddq_s32(sums, vpaddq_s32(first, second));
}
inline Dots add_products(Dots dots, CodeStep codes, WeightStep weights) {
  return {add_pairs(dots.low, codes, weights.low), add_pairs(dots.high, codes, weights.high)};
}
inline I sums_of(Dots dots) { return (I)vpaddq_s32(dots.low, dots.high); }

}  // namespace
}  // namespace satchel
