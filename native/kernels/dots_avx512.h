// Products of unsigned codes with signed weights, 16 outputs at a time. See dots_portable.h.
#pragma once

namespace satchel {
namespace {

constexpr int kIntegerRows = 14;
constexpr int kIntegerTiles = 2;
constexpr int32_t kCodeShift = 0;

// As 32-bit lanes: with __m512i, gcc keeps the sums in two places and copies them to and fro.
using Dots = I;
using WeightStep = __m512i;
using CodeStep = __m512i;

inline Dots dots_from(I sums) { return sums; }
inline WeightStep load_weights(const int8_t* p) { return _mm512_loadu_si512(p); }
inline CodeStep broadcast_codes(const uint8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}
inline Dots add_products(Dots dots, CodeStep codes, WeightStep weights) {
  return (I)_mm512_dpbusd_epi32((__m512i)dots, codes, weights);
}
inline I sums_of(Dots dots) { return dots; }

}  // namespace
}  // namespace satchel
