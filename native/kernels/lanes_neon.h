// Four floats at a time: NEON of any 64-bit Arm. See lanes_portable.h.
#pragma once

#include <arm_neon.h>

#include <cstring>

#include "tables.h"

namespace satchel {
namespace {

using F = float32x4_t;
typedef uint32_t U __attribute__((vector_size(16)));  // unlike uint32x4_t, takes scalars
typedef int32_t I __attribute__((vector_size(16)));

constexpr int kLanes = 4;
constexpr int kAttentionRows = 4;
constexpr int kFloatRows = 6;
constexpr int kFloatTiles = 1;
constexpr int kFloatTilesForOneRow = 4;

inline F load(const float* p) { return vld1q_f32(p); }
inline void store(float* p, F v) { vst1q_f32(p, v); }
inline F load_n(const float* p, int64_t n) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
inline void store_n(float* p, F v, int64_t n) {
  float lanes[kLanes];
  store(lanes, v);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}
inline F broadcast(float x) { return vdupq_n_f32(x); }
inline F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
inline F fused(F a, F b, F c) { return fma(a, b, c); }
inline F larger(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline F smaller(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline U to_bits(F v) { return (U)v; }
inline F from_bits(U v) { return (F)v; }
inline F zero_where_below(F x, float limit, F value) {
  return vbslq_f32(vcltq_f32(x, broadcast(limit)), broadcast(0.0f), value);
}
inline F where_below(F x, float limit, F yes, F no) {
  return vbslq_f32(vcltq_f32(x, broadcast(limit)), yes, no);
}

inline float sum(F v) { return vaddvq_f32(v); }
inline float highest(F v) { return vmaxvq_f32(v); }
inline void sums4(F a, F b, F c, F d, float* out) {
  store(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}

inline U larger_bits(U a, U b) { return (U)vmaxq_u32((uint32x4_t)a, (uint32x4_t)b); }
inline uint32_t highest_bits(U v) { return vmaxvq_u32((uint32x4_t)v); }
inline void store_bytes(int8_t* p, U v) {
  const uint16x4_t words = vmovn_u32((uint32x4_t)v);
  const uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
  const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
  std::memcpy(p, &four, sizeof four);
}

inline F load_int8(const int8_t* p) {
  typedef int32_t Four __attribute__((may_alias, aligned(1)));
  const int8x8_t bytes = vreinterpret_s8_s32(vdup_n_s32(*reinterpret_cast<const Four*>(p)));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}
inline F load_half(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
inline F load_half_n(const uint16_t* p, int64_t n) {
  uint16_t lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load_half(lanes);
}
inline void store_half(uint16_t* p, F v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
inline void store_half_n(uint16_t* p, F v, int64_t n) {
  uint16_t lanes[kLanes];
  store_half(lanes, v);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

inline F load_codes(const uint8_t* p) {
  uint32_t four;
  std::memcpy(&four, p, sizeof four);
  const uint16x8_t words = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(words)));
}

inline I load_whole(const int32_t* p) {
  I v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline F to_floats(I v) { return __builtin_convertvector(v, F); }

inline int32_t sum_codes(const int8_t* codes, int64_t n) {
  int32x4_t total = vdupq_n_s32(0);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) total = vpadalq_s16(total, vpaddlq_s8(vld1q_s8(codes + i)));
  int32_t result = vaddvq_s32(total);
  for (; i < n; ++i) result += codes[i];
  return result;
}

}  // namespace
}  // namespace satchel
