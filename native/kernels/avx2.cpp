// The AVX2 table: bytes are multiplied by maddubs, which adds pairs in 16 bits with saturation.

#include "lanes_avx2.h"

#include "elementwise.inl"
#include "quantize.inl"
#include "linear_float.inl"
#include "attention.inl"

namespace satchel {
namespace {

constexpr int kRowsAtOnce = 4;
constexpr int kHalves = 2;  // registers of eight rows in a tile

inline __m256i load_bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Four activations in every lane.
inline __m256i broadcast4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

template <int M>
inline void scale_group(const uint16_t* scales, const __m256i (*dots)[kHalves],
                        F (*acc)[kHalves]) {
  SATCHEL_UNROLL
  for (int h = 0; h < kHalves; ++h) {
    const F scale = load_half(scales + h * 8);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) acc[m][h] = fma(_mm256_cvtepi32_ps(dots[m][h]), scale, acc[m][h]);
  }
}

template <int M>
inline void write_rows(const QuantizedRows& x, int64_t first, const PackedMatrix& w,
                       const float* bias, int64_t tile, F (*acc)[kHalves], float* y,
                       int64_t ldy) {
  const int64_t n = rows_in_tile(w, tile);
  F offset[kHalves];
  load_bias(bias, tile, n, offset);
  for (int m = 0; m < M; ++m) {
    const F scale = broadcast(x.scales[first + m]);
    for (int h = 0; h < kHalves; ++h) acc[m][h] = acc[m][h] * scale + offset[h];
    store_tile(y + (first + m) * ldy + tile * kTileRows, acc[m], n);
  }
}

// Adds up to 32 columns: 8 pairs of products of at most 15 * 127 stay below 32767.
template <int M>
inline void add_columns_q4(const uint8_t* codes, const int8_t* x, int64_t stride, int steps,
                           __m256i (*dots)[kHalves]) {
  const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  __m256i sums[M][kHalves];
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) sums[m][0] = sums[m][1] = _mm256_setzero_si256();
  for (int s = 0; s < steps; ++s) {
    const __m256i first = load_bytes(codes + s * 64), second = load_bytes(codes + s * 64 + 32);
    const __m256i low[kHalves] = {_mm256_and_si256(first, nibble),
                                  _mm256_and_si256(second, nibble)};
    const __m256i high[kHalves] = {_mm256_and_si256(_mm256_srli_epi16(first, 4), nibble),
                                   _mm256_and_si256(_mm256_srli_epi16(second, 4), nibble)};
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      const __m256i a = broadcast4(x + m * stride + s * 8);
      const __m256i b = broadcast4(x + m * stride + s * 8 + 4);
      SATCHEL_UNROLL
      for (int h = 0; h < kHalves; ++h) {
        sums[m][h] = _mm256_add_epi16(sums[m][h], _mm256_maddubs_epi16(low[h], a));
        sums[m][h] = _mm256_add_epi16(sums[m][h], _mm256_maddubs_epi16(high[h], b));
      }
    }
  }
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) {
    SATCHEL_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      dots[m][h] = _mm256_add_epi32(dots[m][h], _mm256_madd_epi16(sums[m][h], ones));
    }
  }
}

template <int M>
void block_q4(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
              int64_t tile, float* y, int64_t ldy) {
  const int64_t groups = w.cols / w.group;
  const uint8_t* codes = w.codes + tile * w.cols * 8;
  const uint16_t* scales = w.scales + tile * groups * kTileRows;
  const int8_t* activations = x.codes + first * x.stride;
  F acc[M][kHalves];
  for (int m = 0; m < M; ++m) acc[m][0] = acc[m][1] = broadcast(0.0f);
  for (int64_t g = 0; g < groups; ++g) {
    __m256i dots[M][kHalves];
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      dots[m][0] = dots[m][1] = _mm256_set1_epi32(-8 * x.sums[(first + m) * groups + g]);
    }
    const int64_t end = (g + 1) * w.group;
    int64_t c = g * w.group;
    for (; c + 32 <= end; c += 32) {
      _mm_prefetch(reinterpret_cast<const char*>(codes + c * 8 + 2048), _MM_HINT_T0);
      add_columns_q4<M>(codes + c * 8, activations + c, x.stride, 4, dots);
    }
    if (c < end) {
      add_columns_q4<M>(codes + c * 8, activations + c, x.stride, static_cast<int>(end - c) / 8,
                        dots);
    }
    scale_group<M>(scales + g * kTileRows, dots, acc);
  }
  write_rows<M>(x, first, w, bias, tile, acc, y, ldy);
}

// 255 * 127 twice would saturate 16 bits. The weight's sign is moved to the activation instead:
// |q| * (x with q's sign) stays below 2 * 127 * 127, and needs no correction by the sums.
template <int M>
void block_q8(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
              int64_t tile, float* y, int64_t ldy) {
  const int64_t groups = w.cols / w.group;
  const uint8_t* codes = w.codes + tile * w.cols * kTileRows;
  const uint16_t* scales = w.scales + tile * groups * kTileRows;
  const int8_t* activations = x.codes + first * x.stride;
  const __m256i offset = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
  F acc[M][kHalves];
  for (int m = 0; m < M; ++m) acc[m][0] = acc[m][1] = broadcast(0.0f);
  for (int64_t g = 0; g < groups; ++g) {
    __m256i dots[M][kHalves];
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) dots[m][0] = dots[m][1] = _mm256_setzero_si256();
    for (int64_t c = g * w.group; c < (g + 1) * w.group; c += 4) {
      const uint8_t* step = codes + c * kTileRows;
      _mm_prefetch(reinterpret_cast<const char*>(step + 2048), _MM_HINT_T0);
      const __m256i q[kHalves] = {_mm256_xor_si256(load_bytes(step), offset),
                                  _mm256_xor_si256(load_bytes(step + 32), offset)};
      const __m256i size[kHalves] = {_mm256_abs_epi8(q[0]), _mm256_abs_epi8(q[1])};
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        const __m256i a = broadcast4(activations + m * x.stride + c);
        SATCHEL_UNROLL
        for (int h = 0; h < kHalves; ++h) {
          const __m256i pairs = _mm256_maddubs_epi16(size[h], _mm256_sign_epi8(a, q[h]));
          dots[m][h] = _mm256_add_epi32(dots[m][h], _mm256_madd_epi16(pairs, ones));
        }
      }
    }
    scale_group<M>(scales + g * kTileRows, dots, acc);
  }
  write_rows<M>(x, first, w, bias, tile, acc, y, ldy);
}

void linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
               int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    int64_t i = 0;
    for (; i + kRowsAtOnce <= x.rows; i += kRowsAtOnce) {
      block_q4<kRowsAtOnce>(x, i, w, bias, tile, y, ldy);
    }
    for (; i < x.rows; ++i) block_q4<1>(x, i, w, bias, tile, y, ldy);
  }
}

void linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
               int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    int64_t i = 0;
    for (; i + kRowsAtOnce <= x.rows; i += kRowsAtOnce) {
      block_q8<kRowsAtOnce>(x, i, w, bias, tile, y, ldy);
    }
    for (; i < x.rows; ++i) block_q8<1>(x, i, w, bias, tile, y, ldy);
  }
}

}  // namespace
}  // namespace satchel

#include "table.inl"

namespace satchel {

constinit const KernelTable avx2_table = make_table("avx2");

}  // namespace satchel
