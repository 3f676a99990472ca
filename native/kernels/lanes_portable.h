// Four floats at a time in plain C++ with the vector types of gcc and clang: SSE2 or NEON.
//
// The lanes_*.h files give the same functions for each register width; the .inl files are
// written with them. larger() and smaller() return their second argument when one is NaN.
#pragma once

#include "half.h"
#include "tables.h"

namespace satchel {
namespace {

typedef float F __attribute__((vector_size(16)));
typedef uint32_t U __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
typedef int32_t S __attribute__((vector_size(16)));
typedef int8_t Bytes __attribute__((vector_size(4)));

constexpr int kLanes = 4;
constexpr int kAttentionRows = 2;
// Blocks of linear_f32 and linear_f16: rows of x and tiles, and tiles when there is only one row.
constexpr int kFloatRows = 2;
constexpr int kFloatTiles = 1;
constexpr int kFloatTilesForOneRow = 2;

inline F load(const float* p) {
  F v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, F v) { std::memcpy(p, &v, sizeof v); }
inline F load_n(const float* p, int64_t n) {
  F v = {0, 0, 0, 0};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
inline void store_n(float* p, F v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}
inline F broadcast(float x) { return F{x, x, x, x}; }
inline F fma(F a, F b, F c) { return a * b + c; }
// With one rounding, where results must be those of other tables: a product of two floats is exact
// in double.
inline F fused(F a, F b, F c) {
  typedef double D __attribute__((vector_size(32)));
  const D exact = __builtin_convertvector(a, D) * __builtin_convertvector(b, D);
  return __builtin_convertvector(exact + __builtin_convertvector(c, D), F);
}
inline F larger(F a, F b) { return a > b ? a : b; }
inline F smaller(F a, F b) { return a < b ? a : b; }
inline F zero_where_below(F x, float limit, F value) { return (F)((U)value & ~(U)(x < limit)); }
inline F where_below(F x, float limit, F yes, F no) { return x < limit ? yes : no; }
inline U to_bits(F v) { return (U)v; }
inline F from_bits(U v) { return (F)v; }

inline float sum(F v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline float highest(F v) {
  const float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
  return a > b ? a : b;
}
inline void sums4(F a, F b, F c, F d, float* out) {
  const F ab =
      __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const F cd =
      __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store(out,
        __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
}

// The bit patterns of magnitudes order as integers do, with NaN above infinity.
inline U larger_bits(U a, U b) { return (S)a > (S)b ? a : b; }
inline uint32_t highest_bits(U v) {
  uint32_t result = v[0];
  for (int i = 1; i < kLanes; ++i) result = v[i] > result ? v[i] : result;
  return result;
}
inline void store_bytes(int8_t* p, U v) {
  const Bytes bytes = __builtin_convertvector(v, Bytes);
  std::memcpy(p, &bytes, sizeof bytes);
}

// Halves in the low bits of each lane. A half's bits, moved up, are a float 2^112 too small, also
// where it is subnormal.
inline F widen(U half) {
  const U magnitude = (half & 0x7fffu) << 13;
  const U special = (U)((S)magnitude >= 0x0f800000) & 0x7f800000u;  // infinity and NaN
  const U quiet = (U)((S)magnitude > 0x0f800000) & 0x400000u;
  const U bits = (U)((F)magnitude * broadcast(5.192296858534828e33f));
  return (F)(bits | special | quiet | (half & 0x8000u) << 16);
}
inline F load_int8(const int8_t* p) {
  Bytes bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(bytes, F);
}
inline F load_half(const uint16_t* p) { return widen(U{p[0], p[1], p[2], p[3]}); }
inline F load_half_n(const uint16_t* p, int64_t n) {
  U v = {0, 0, 0, 0};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return widen(v);
}
inline void store_half(uint16_t* p, F v) {
  for (int i = 0; i < kLanes; ++i) p[i] = float_to_half_bits(v[i]);
}
inline void store_half_n(uint16_t* p, F v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = float_to_half_bits(v[i]);
}

inline F load_codes(const uint8_t* p) {
  return __builtin_convertvector((S{p[0], p[1], p[2], p[3]}), F);
}

inline I load_whole(const int32_t* p) {
  I v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline F to_floats(I v) { return __builtin_convertvector(v, F); }

inline int32_t sum_codes(const int8_t* codes, int64_t n) {
  int32_t total = 0;
  for (int64_t i = 0; i < n; ++i) total += codes[i];
  return total;
}

}  // namespace
}  // namespace satchel
