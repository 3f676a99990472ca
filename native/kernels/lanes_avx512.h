// Sixteen floats at a time: AVX-512 with VNNI. See lanes_portable.h.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "tables.h"

namespace satchel {
namespace {

using F = __m512;
typedef uint32_t U __attribute__((vector_size(64)));
typedef int32_t I __attribute__((vector_size(64)));

constexpr int kLanes = 16;
constexpr int kAttentionRows = 4;
constexpr int kFloatRows = 14;
constexpr int kFloatTiles = 2;
constexpr int kFloatTilesForOneRow = 4;

inline __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }

inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F v) { _mm512_storeu_ps(p, v); }
inline F load_n(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void store_n(float* p, F v, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
inline F broadcast(float x) { return _mm512_set1_ps(x); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F fused(F a, F b, F c) { return fma(a, b, c); }
inline F larger(F a, F b) { return _mm512_max_ps(a, b); }
inline F smaller(F a, F b) { return _mm512_min_ps(a, b); }
inline F zero_where_below(F x, float limit, F value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, broadcast(limit), _CMP_NLT_UQ), value);
}
inline F where_below(F x, float limit, F yes, F no) {
  return _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask(x, broadcast(limit), _CMP_LT_OQ), yes);
}
inline U to_bits(F v) { return (U)v; }
inline F from_bits(U v) { return (F)v; }

inline float sum(F v) { return _mm512_reduce_add_ps(v); }
inline float highest(F v) { return _mm512_reduce_max_ps(v); }
inline void sums4(F a, F b, F c, F d, float* out) {
  const F ab = _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xee);
  const F cd = _mm512_shuffle_f32x4(c, d, 0x44) + _mm512_shuffle_f32x4(c, d, 0xee);
  F all = _mm512_shuffle_f32x4(ab, cd, 0x88) + _mm512_shuffle_f32x4(ab, cd, 0xdd);
  all = all + _mm512_permute_ps(all, 0x4e);
  all = all + _mm512_permute_ps(all, 0xb1);  // each quarter now holds its sum in every lane
  const __m512i quarters = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(quarters, all)));
}

inline U larger_bits(U a, U b) { return (U)_mm512_max_epu32((__m512i)a, (__m512i)b); }
inline uint32_t highest_bits(U v) { return _mm512_reduce_max_epu32((__m512i)v); }
inline void store_bytes(int8_t* p, U v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8((__m512i)v));
}

inline F load_int8(const int8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline F load_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline F load_half_n(const uint16_t* p, int64_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
inline void store_half(uint16_t* p, F v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_half_n(uint16_t* p, F v, int64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

inline F load_codes(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// See integer_finish.inl: numbers as codes, with saturation instead of limits. Only the upper one
// is needed before, where something may be too large to be whole and would turn negative.
#define SATCHEL_STORES_CODE_ROWS
// Four vectors fill a register with codes.
template <int V>
constexpr int kCodeRows = 4 / V;
template <int R, int V, bool kInSteps = false, class Range>
inline void store_code_rows(uint8_t* out, int64_t ldo, const F* numbers, const Range& range) {
  static_assert((V <= 2 || V == 4) && (R == 1 || R == kCodeRows<V>));
  constexpr int N = R * V;
  F scaled[N];
  SATCHEL_UNROLL
  for (int i = 0; i < N; ++i) scaled[i] = kInSteps ? numbers[i] : numbers[i] * range.inverse;
  if (!range.small) {
    SATCHEL_UNROLL
    for (int i = 0; i < N; ++i) scaled[i] = smaller(range.highest, scaled[i]);
  }
  const auto pair = [&](int first, int second) {
    const __m512i a = _mm512_cvtps_epi32(scaled[first]);
    return _mm512_packs_epi32(a, first == second ? a : _mm512_cvtps_epi32(scaled[second]));
  };
  __m512i low = pair(0, N == 1 ? 0 : 1), high = N == 4 ? pair(2, 3) : low;
  if (range.zero != 0) {
    const __m512i zero = _mm512_set1_epi16(static_cast<int16_t>(range.zero));
    low = _mm512_adds_epi16(zero, low);
    high = N == 4 ? _mm512_adds_epi16(zero, high) : low;
  }
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i codes = _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
  if (range.lowest_code != 0) {
    codes = _mm512_max_epu8(_mm512_set1_epi8(static_cast<int8_t>(range.lowest_code)), codes);
  }
  if constexpr (V == 4) {
    _mm512_storeu_si512(out, codes);
  } else if constexpr (V == 2) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_castsi512_si256(codes));
    if constexpr (R == 2) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + ldo),
                          _mm512_extracti64x4_epi64(codes, 1));
    }
  } else {
    const auto put = [&](int64_t row, __m128i part) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + row * ldo), part);
    };
    put(0, _mm512_castsi512_si128(codes));
    if constexpr (R == 4) {
      put(1, _mm512_extracti32x4_epi32(codes, 1));
      put(2, _mm512_extracti32x4_epi32(codes, 2));
      put(3, _mm512_extracti32x4_epi32(codes, 3));
    }
  }
}

inline I load_whole(const int32_t* p) {
  I v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline F to_floats(I v) { return __builtin_convertvector(v, F); }

inline int32_t sum_codes(const int8_t* codes, int64_t n) {
  const __m256i ones = _mm256_set1_epi8(1);
  __m256i total = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    total = _mm256_dpbusd_epi32(total, ones,
                                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)));
  }
  if (i < n) {
    const __mmask32 rest = static_cast<__mmask32>((1ull << (n - i)) - 1);
    total = _mm256_dpbusd_epi32(total, ones, _mm256_maskz_loadu_epi8(rest, codes + i));
  }
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtsi128_si32(four);
}

}  // namespace
}  // namespace satchel
