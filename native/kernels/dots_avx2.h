// Products of unsigned codes with signed weights, eight outputs at a time. See dots_portable.h.
//
// maddubs would saturate the sum of two products of 255 and 127, so bytes are widened to 16 bits;
// the two pairs of an output are added at the end.
#pragma once

namespace satchel {
namespace {

constexpr int kIntegerRows = 2;
constexpr int kIntegerTiles = 1;
constexpr int32_t kCodeShift = 0;

struct Dots {
  __m256i low, high;  // outputs 0-3 and 4-7, two sums each
};
struct WeightStep {
  __m256i low, high;
};
using CodeStep = __m256i;

inline Dots dots_from(I sums) {
  return {_mm256_cvtepu32_epi64(_mm256_castsi256_si128((__m256i)sums)),
          _mm256_cvtepu32_epi64(_mm256_extracti128_si256((__m256i)sums, 1))};
}
inline WeightStep load_weights(const int8_t* p) {
  const __m128i* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(halves)),
          _mm256_cvtepi8_epi16(_mm_loadu_si128(halves + 1))};
}
inline CodeStep broadcast_codes(const uint8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_cvtepu8_epi16(_mm_set1_epi32(four));
}
inline Dots add_products(Dots dots, CodeStep codes, WeightStep weights) {
  return {_mm256_add_epi32(dots.low, _mm256_madd_epi16(codes, weights.low)),
          _mm256_add_epi32(dots.high, _mm256_madd_epi16(codes, weights.high))};
}
inline I sums_of(Dots dots) {
  return (I)_mm256_permute4x64_epi64(_mm256_hadd_epi32(dots.low, dots.high), 0xd8);
}

}  // namespace
}  // namespace satchel
