// Eight floats at a time: AVX2, FMA and F16C. See lanes_portable.h.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "tables.h"

namespace satchel {
namespace {

using F = __m256;
typedef uint32_t U __attribute__((vector_size(32)));
typedef int32_t I __attribute__((vector_size(32)));

constexpr int kLanes = 8;
constexpr int kAttentionRows = 2;
constexpr int kFloatRows = 6;
constexpr int kFloatTiles = 1;
constexpr int kFloatTilesForOneRow = 4;

inline __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline F load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, F v) { _mm256_storeu_ps(p, v); }
inline F load_n(const float* p, int64_t n) { return _mm256_maskload_ps(p, first_lanes(n)); }
inline void store_n(float* p, F v, int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), v); }
inline F broadcast(float x) { return _mm256_set1_ps(x); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F fused(F a, F b, F c) { return fma(a, b, c); }
inline F larger(F a, F b) { return _mm256_max_ps(a, b); }
inline F smaller(F a, F b) { return _mm256_min_ps(a, b); }
inline F zero_where_below(F x, float limit, F value) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, broadcast(limit), _CMP_LT_OQ), value);
}
inline F where_below(F x, float limit, F yes, F no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(x, broadcast(limit), _CMP_LT_OQ));
}
inline U to_bits(F v) { return (U)v; }
inline F from_bits(U v) { return (F)v; }

inline float sum(F v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
inline float highest(F v) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
inline void sums4(F a, F b, F c, F d, float* out) {
  const F halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
}

inline U larger_bits(U a, U b) { return (U)_mm256_max_epu32((__m256i)a, (__m256i)b); }
inline uint32_t highest_bits(U v) {
  uint32_t lanes[kLanes], result = 0;
  std::memcpy(lanes, &v, sizeof v);
  for (int i = 0; i < kLanes; ++i) result = lanes[i] > result ? lanes[i] : result;
  return result;
}
inline void store_bytes(int8_t* p, U v) {
  // The low byte of each lane: gathered within each half, then the two halves joined.
  const __m256i pick =
      _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1,
                       -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i picked = _mm256_shuffle_epi8((__m256i)v, pick);
  _mm_storel_epi64(
      reinterpret_cast<__m128i*>(p),
      _mm_unpacklo_epi32(_mm256_castsi256_si128(picked), _mm256_extracti128_si256(picked, 1)));
}

inline F load_int8(const int8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline F load_half(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline F load_half_n(const uint16_t* p, int64_t n) {
  uint16_t lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load_half(lanes);
}
inline void store_half(uint16_t* p, F v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_half_n(uint16_t* p, F v, int64_t n) {
  uint16_t lanes[kLanes];
  store_half(lanes, v);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

inline F load_codes(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

inline I load_whole(const int32_t* p) {
  I v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline F to_floats(I v) { return __builtin_convertvector(v, F); }

inline int32_t sum_codes(const int8_t* codes, int64_t n) {
  const __m256i ones = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
  __m256i total = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
    total = _mm256_add_epi32(total, _mm256_madd_epi16(_mm256_maddubs_epi16(ones, c), ones16));
  }
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  int32_t result = _mm_cvtsi128_si32(four);
  for (; i < n; ++i) result += codes[i];
  return result;
}

}  // namespace
}  // namespace satchel
