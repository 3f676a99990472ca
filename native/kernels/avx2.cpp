// The AVX2 table: bytes are multiplied by maddubs, which adds pairs in 16 bits with saturation.

#include "lanes_avx2.h"

#include "elementwise.inl"
#include "quantize.inl"
#include "activate.inl"
#include "softmax.inl"
#include "linear_float.inl"
#include "integer_finish.inl"
#include "codes.inl"
#include "dots_avx2.h"
#include "linear_i8.inl"
#include "depthwise.inl"
#include "depthwise_i8.inl"
#include "attention.inl"
#include "scales.inl"
#include "streams_ahead.h"

namespace satchel {
namespace {

constexpr int kRowsAtOnce = 4;
// A single row waits for memory: more tiles at once are more streams for the prefetchers.
constexpr int kTilesForOneRow = 4;
constexpr int kTilesForTwoRows = 2;  // the digits of a token

inline __m256i load_bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Four activations in every lane.
inline __m256i broadcast4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

// M rows of activations against T tiles at a distance, each in two registers of eight rows. `Code`
// says how an encoding adds columns [begin, end) of a group.
template <class Code, int M, int T>
void block(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
           int64_t tile, int64_t distance, float* y, int64_t ldy) {
  constexpr int kParts = 2 * T;
  const int64_t groups = w.cols / w.group, tile_bytes = w.cols * Code::kColumnBytes;
  const uint8_t* codes = w.codes + tile * tile_bytes;
  typename Code::template Scales<T> scales(w, tile, distance);
  const int8_t* activations = x.codes + first * x.stride;
  const StreamsAhead ahead(x);
  F acc[M][kParts];
  for (int m = 0; m < M; ++m) {
    for (int p = 0; p < kParts; ++p) acc[m][p] = broadcast(0.0f);
  }
  for (int64_t g = 0; g < groups; ++g) {
    __m256i dots[M][kParts];
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      const __m256i start = _mm256_set1_epi32(-Code::kOffset * x.sums[(first + m) * groups + g]);
      SATCHEL_UNROLL
      for (int p = 0; p < kParts; ++p) dots[m][p] = start;
    }
    if constexpr (M == 1) {
      const int64_t group_bytes = w.group * Code::kColumnBytes;
      ahead.ask<T>(codes + g * group_bytes, distance * tile_bytes, group_bytes);
    }
    Code::template add<M, kParts>(codes, distance * tile_bytes, activations, x.stride, g * w.group,
                                  (g + 1) * w.group, dots);
    SATCHEL_UNROLL
    for (int p = 0; p < kParts; ++p) {
      const F scale = scales.at(p / 2, p % 2 * 8);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        acc[m][p] = fma(_mm256_cvtepi32_ps(dots[m][p]), scale, acc[m][p]);
      }
      if constexpr (Code::kHasMinima) {
        const F minimum = scales.minimum(p / 2, p % 2 * 8);
        SATCHEL_UNROLL
        for (int m = 0; m < M; ++m) {
          const auto sum = static_cast<float>(x.sums[(first + m) * groups + g]);
          acc[m][p] = fma(minimum, broadcast(-sum), acc[m][p]);
        }
      }
    }
    scales.next();
  }
  for (int t = 0; t < T; ++t) {
    const int64_t at = tile + t * distance, n = rows_in_tile(w, at);
    F offset[2];
    load_bias(bias, at, n, offset);
    for (int m = 0; m < M; ++m) {
      const F scale = broadcast(x.scales[first + m]);
      const F result[2] = {acc[m][2 * t] * scale + offset[0],
                           acc[m][2 * t + 1] * scale + offset[1]};
      store_tile(y + (first + m) * ldy + at * kTileRows, result, n);
    }
  }
}

struct Q4 {
  template <int T>
  using Scales = HalfScales;
  static constexpr int64_t kColumnBytes = 8;
  static constexpr int kOffset = 8;
  static constexpr bool kHasMinima = false;

  // Steps of 8 columns, at most 4: 8 pairs of products of at most 15 * 127 stay below 32767.
  template <int M, int P>
  static inline void add_steps(const uint8_t* codes, int64_t tile_bytes, const int8_t* x,
                               int64_t stride, int steps, __m256i (*dots)[P]) {
    const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i sums[M][P];
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      SATCHEL_UNROLL
      for (int p = 0; p < P; ++p) sums[m][p] = _mm256_setzero_si256();
    }
    for (int s = 0; s < steps; ++s) {
      __m256i low[P], high[P];
      SATCHEL_UNROLL
      for (int p = 0; p < P; ++p) {
        const __m256i bytes = load_bytes(codes + p / 2 * tile_bytes + s * 64 + p % 2 * 32);
        low[p] = _mm256_and_si256(bytes, nibble);
        high[p] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
      }
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        const __m256i a = broadcast4(x + m * stride + s * 8);
        const __m256i b = broadcast4(x + m * stride + s * 8 + 4);
        SATCHEL_UNROLL
        for (int p = 0; p < P; ++p) {
          sums[m][p] = _mm256_add_epi16(sums[m][p], _mm256_maddubs_epi16(low[p], a));
          sums[m][p] = _mm256_add_epi16(sums[m][p], _mm256_maddubs_epi16(high[p], b));
        }
      }
    }
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      SATCHEL_UNROLL
      for (int p = 0; p < P; ++p) {
        dots[m][p] = _mm256_add_epi32(dots[m][p], _mm256_madd_epi16(sums[m][p], ones));
      }
    }
  }

  template <int M, int P>
  static inline void add(const uint8_t* codes, int64_t tile_bytes, const int8_t* x, int64_t stride,
                         int64_t begin, int64_t end, __m256i (*dots)[P]) {
    int64_t c = begin;
    for (; c + 32 <= end; c += 32) {
      add_steps<M, P>(codes + c * kColumnBytes, tile_bytes, x + c, stride, 4, dots);
    }
    if (c < end) {
      add_steps<M, P>(codes + c * kColumnBytes, tile_bytes, x + c, stride,
                      static_cast<int>(end - c) / 8, dots);
    }
  }
};

struct Q4Steps : Q4 {
  template <int T>
  using Scales = StepScales;
};

// 255 * 127 twice would saturate 16 bits. The weight's sign is moved to the activation instead:
// |q| * (x with q's sign) stays below 2 * 127 * 127, and needs no correction by the sums.
struct Q8 {
  template <int T>
  using Scales = HalfScales;
  static constexpr int64_t kColumnBytes = 16;
  static constexpr int kOffset = 0;
  static constexpr bool kHasMinima = false;

  template <int M, int P>
  static inline void add(const uint8_t* codes, int64_t tile_bytes, const int8_t* x, int64_t stride,
                         int64_t begin, int64_t end, __m256i (*dots)[P]) {
    const __m256i offset = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
    for (int64_t c = begin; c < end; c += 4) {
      SATCHEL_UNROLL
      for (int p = 0; p < P; ++p) {
        const uint8_t* bytes = codes + c * kColumnBytes + p / 2 * tile_bytes + p % 2 * 32;
        const __m256i q = _mm256_xor_si256(load_bytes(bytes), offset);
        const __m256i size = _mm256_abs_epi8(q);
        SATCHEL_UNROLL
        for (int m = 0; m < M; ++m) {
          const __m256i a = broadcast4(x + m * stride + c);
          const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(a, q));
          dots[m][p] = _mm256_add_epi32(dots[m][p], _mm256_madd_epi16(pairs, ones));
        }
      }
    }
  }
};

}  // namespace
}  // namespace satchel

#include "avx2_packed_bits.inl"

namespace satchel {
namespace {

template <class Code>
void linear_q(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t ldy) {
  int64_t tile = tile_begin;
  if (x.rows == 1) {
    // Streams that stay apart, so that each is long.
    const int64_t distance = (tile_end - tile_begin) / kTilesForOneRow;
    for (; tile < tile_begin + distance; ++tile) {
      block<Code, 1, kTilesForOneRow>(x, 0, w, bias, tile, distance, y, ldy);
    }
    tile = tile_begin + distance * kTilesForOneRow;
  } else if (x.rows == 2) {
    const int64_t distance = (tile_end - tile_begin) / kTilesForTwoRows;
    for (; tile < tile_begin + distance; ++tile) {
      block<Code, 2, kTilesForTwoRows>(x, 0, w, bias, tile, distance, y, ldy);
    }
    tile = tile_begin + distance * kTilesForTwoRows;
  }
  for (; tile < tile_end; ++tile) {
    int64_t i = 0;
    for (; i + kRowsAtOnce <= x.rows; i += kRowsAtOnce) {
      block<Code, kRowsAtOnce, 1>(x, i, w, bias, tile, 1, y, ldy);
    }
    for (; i < x.rows; ++i) block<Code, 1, 1>(x, i, w, bias, tile, 1, y, ldy);
  }
}

void linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  const auto linear = w.encoding == MatrixEncoding::q4_steps ? linear_q<Q4Steps> : linear_q<Q4>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

void linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  linear_q<Q8>(x, w, bias, tile_begin, tile_end, y, ldy);
}

// Codes that many rows meet are unpacked once, a tile at a time, where its bytes stay in the cache.
template <class Code>
void linear_packed(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                   int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  constexpr int64_t kFewestRows = 8, kMostColumns = 4096;
  if (x.rows < kFewestRows || w.cols > kMostColumns) {
    return linear_q<Code>(x, w, bias, tile_begin, tile_end, y, ldy);
  }
  alignas(32) uint8_t bytes[kMostColumns * kTileRows];
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    Code::unpack(w.codes + tile * w.cols * Code::kColumnBytes, w.cols, bytes);
    PackedMatrix one = w;
    one.rows = rows_in_tile(w, tile), one.codes = bytes;
    one.scales += tile * scales_in_tile(w);
    linear_q<Unpacked<Code>>(x, one, bias ? bias + tile * kTileRows : nullptr, 0, 1,
                             y + tile * kTileRows, ldy);
  }
}

void linear_k(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t ldy) {
  const auto linear = w.encoding == MatrixEncoding::q4_k   ? linear_q<Q4K>
                      : w.encoding == MatrixEncoding::q5_k ? linear_packed<Q5K>
                      : w.encoding == MatrixEncoding::q6_k ? linear_packed<Q6K>
                                                           : linear_packed<Q5>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

}  // namespace
}  // namespace satchel

#include "table.inl"

namespace satchel {

constinit const KernelTable avx2_table = make_table("avx2");

}  // namespace satchel
