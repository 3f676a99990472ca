// Products of unsigned codes with signed weights, four outputs at a time. See dots_portable.h.
//
// usdot multiplies unsigned by signed bytes and comes with i8mm. Without it, sdot multiplies signed
// ones: a code with its first bit turned over is the code less 128.
#pragma once

namespace satchel {
namespace {

constexpr int kIntegerRows = 6;
constexpr int kIntegerTiles = 1;

using Dots = int32x4_t;
using WeightStep = int8x16_t;

inline Dots dots_from(I sums) { return (int32x4_t)sums; }
inline WeightStep load_weights(const int8_t* p) { return vld1q_s8(p); }
inline uint8x16_t four_codes(const uint8_t* p) {
  uint32_t four;
  std::memcpy(&four, p, sizeof four);
  return vreinterpretq_u8_u32(vdupq_n_u32(four));
}
inline I sums_of(Dots dots) { return (I)dots; }

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int32_t kCodeShift = 0;
using CodeStep = uint8x16_t;
inline CodeStep broadcast_codes(const uint8_t* p) { return four_codes(p); }
inline Dots add_products(Dots dots, CodeStep codes, WeightStep weights) {
  return vusdotq_s32(dots, codes, weights);
}
#else
constexpr int32_t kCodeShift = 128;
using CodeStep = int8x16_t;
inline CodeStep broadcast_codes(const uint8_t* p) {
  return vreinterpretq_s8_u8(veorq_u8(four_codes(p), vdupq_n_u8(0x80)));
}
inline Dots add_products(Dots dots, CodeStep codes, WeightStep weights) {
  return vdotq_s32(dots, codes, weights);
}
#endif

}  // namespace
}  // namespace satchel
