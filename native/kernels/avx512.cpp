// The AVX-512 table: vpdpbusd multiplies four bytes of each of a tile's 16 rows at once.

#include "lanes_avx512.h"

#include "elementwise.inl"
#include "quantize.inl"
#include "activate.inl"
#include "softmax.inl"
#include "linear_float.inl"
#include "integer_finish.inl"
#include "codes.inl"
#include "dots_avx512.h"
#include "linear_i8.inl"
#include "depthwise.inl"
#include "depthwise_i8_avx512.inl"
#include "attention.inl"
#include "attention_long.inl"
#include "scales.inl"
#include "streams_ahead.h"

namespace satchel {
namespace {

// Four rows by two tiles measured faster than eight by one: each activation serves two products.
constexpr int kRowsAtOnce = 4;
constexpr int kTilesAtOnce = 2;
// A single row waits for memory: more tiles at once are more streams for the prefetchers.
constexpr int kTilesForOneRow = 4;

inline __m512i load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }

// Four activations in every lane.
inline __m512i broadcast4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}

// sums += unsigned bytes times signed bytes, by fours. In assembly, because gcc copies the sums to
// another register and back around the intrinsic.
inline void accumulate(__m512i& sums, __m512i codes, __m512i activations) {
#if defined(__GNUC__) && !defined(__clang__)
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(activations));
#else
  sums = _mm512_dpbusd_epi32(sums, codes, activations);
#endif
}

// How each encoding adds a 64-byte step of a tile to the dot products of M rows.
struct Q4 {
  static constexpr int kColumns = 8;
  static constexpr int kOffset = 8;
  static constexpr int kSmallestGroup = 8;

  // Columns [first, first + columns) of a tile as bytes [cols/4][16][4].
  static const uint8_t* bytes_of(const PackedMatrix& w, int64_t tile, int64_t first,
                                 int64_t columns, uint8_t* out) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const uint8_t* codes = w.codes + (tile * w.cols + first) * 8;
    for (int64_t c = 0; c < columns; c += 8) {
      const __m512i bytes = load_bytes(codes + c * 8);
      _mm512_store_si512(out + c * 16, _mm512_and_si512(bytes, nibble));
      _mm512_store_si512(out + c * 16 + 64, _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble));
    }
    return out;
  }

  template <int M>
  static inline void add(const uint8_t* codes, const int8_t* x, int64_t stride, __m512i* dots) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i bytes = load_bytes(codes);
    const __m512i low = _mm512_and_si512(bytes, nibble);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      accumulate(dots[m], low, broadcast4(x + m * stride));
    }
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      accumulate(dots[m], high, broadcast4(x + m * stride + 4));
    }
  }
};

struct Q8 {
  static constexpr int kColumns = 4;
  static constexpr int kOffset = 128;
  static constexpr int kSmallestGroup = 4;

  static const uint8_t* bytes_of(const PackedMatrix& w, int64_t tile, int64_t first, int64_t,
                                 uint8_t*) {
    return w.codes + (tile * w.cols + first) * 16;
  }

  template <int M>
  static inline void add(const uint8_t* codes, const int8_t* x, int64_t stride, __m512i* dots) {
    const __m512i bytes = load_bytes(codes);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      accumulate(dots[m], bytes, broadcast4(x + m * stride));
    }
  }
};

}  // namespace
}  // namespace satchel

#include "avx512_rows.inl"
#include "avx512_steps.inl"
#include "avx512_runs.inl"

namespace satchel {
namespace {

// M rows of activations against T tiles at a distance. The sums start at minus the codes' offset
// times the sum of the activations, which leaves the product with the signed weights. Where a group
// has as many steps as kGroupSteps says, no loop is left in it, and all sums stay in registers.
template <class Code, int M, int T, int kGroupSteps = 0>
void block(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
           int64_t tile, int64_t distance, float* y, int64_t ldy) {
  const int64_t groups = w.cols / w.group,
                steps = kGroupSteps > 0 ? kGroupSteps : w.group / Code::kColumns;
  const int64_t tile_bytes = w.cols / Code::kColumns * 64;
  const uint8_t* codes = w.codes + tile * tile_bytes;
  const int64_t stream = distance * tile_bytes;
  HalfScales scales(w, tile, distance);
  const int8_t* activations = x.codes + first * x.stride;
  const int32_t* sums = x.sums + first * groups;
  const StreamsAhead ahead(x);
  F acc[T][M];
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) {
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) acc[t][m] = broadcast(0.0f);
  }
  for (int64_t g = 0; g < groups; ++g) {
    if constexpr (M == 1) ahead.ask<T>(codes + g * steps * 64, stream, steps * 64);
    __m512i dots[T][M];
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        dots[t][m] = _mm512_set1_epi32(-Code::kOffset * sums[m * groups + g]);
      }
    }
    const auto step = [&](int64_t s) {
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) {
        Code::template add<M>(codes + t * stream + s * 64, activations + s * Code::kColumns,
                              x.stride, dots[t]);
      }
    };
    int64_t s = g * steps;
    const int64_t end = s + steps;
    if constexpr (kGroupSteps > 0) {
      SATCHEL_UNROLL
      for (int i = 0; i < kGroupSteps; ++i) step(s + i);
    } else {
      for (; s + 4 <= end; s += 4) {
        step(s);
        step(s + 1);
        step(s + 2);
        step(s + 3);
      }
      for (; s < end; ++s) step(s);
    }
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const F scale = scales.at(t);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        acc[t][m] = fma(_mm512_cvtepi32_ps(dots[t][m]), scale, acc[t][m]);
      }
    }
    scales.next();
  }
  for (int t = 0; t < T; ++t) {
    const int64_t at = tile + t * distance, n = rows_in_tile(w, at);
    F offset;
    load_bias(bias, at, n, &offset);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      const F result = acc[t][m] * broadcast(x.scales[first + m]) + offset;
      store_tile(y + (first + m) * ldy + at * kTileRows, &result, n);
    }
  }
}

// One row against T tiles with groups of 32 columns, the usual case: nothing of a group is left to
// loops, and the two nibbles have sums of their own, which halves the wait for each other.
template <class Code, int T>
void one_row_of_groups_of_32(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                             int64_t tile, int64_t distance, float* y) {
  constexpr int kSteps = 4;  // of 8 columns
  const int64_t groups = w.cols / 32, stream = distance * w.cols * 8;
  const uint8_t* codes = w.codes + tile * w.cols * 8;
  HalfScales scales(w, tile, distance);
  const __m512i nibble = _mm512_set1_epi8(15);
  const StreamsAhead ahead(x);
  F acc[T];
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) acc[t] = broadcast(0.0f);
  for (int64_t g = 0; g < groups; ++g, codes += kSteps * 64) {
    ahead.ask<T>(codes, stream, kSteps * 64);
    const int8_t* activations = x.codes + g * 32;
    __m512i low[T], high[T];
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      low[t] = _mm512_set1_epi32(-Q4::kOffset * x.sums[g]);
      high[t] = _mm512_setzero_si512();
    }
    SATCHEL_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const __m512i first = broadcast4(activations + s * 8);
      const __m512i second = broadcast4(activations + s * 8 + 4);
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m512i bytes = load_bytes(codes + t * stream + s * 64);
        accumulate(low[t], _mm512_and_si512(bytes, nibble), first);
        accumulate(high[t], _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble), second);
      }
    }
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const F dots = _mm512_cvtepi32_ps(_mm512_add_epi32(low[t], high[t]));
      acc[t] = fma(dots, scales.at(t), acc[t]);
    }
    scales.next();
  }
  for (int t = 0; t < T; ++t) {
    const int64_t at = tile + t * distance, n = rows_in_tile(w, at);
    F offset;
    load_bias(bias, at, n, &offset);
    const F result = acc[t] * broadcast(x.scales[0]) + offset;
    store_tile(y + at * kTileRows, &result, n);
  }
}

// M rows against a range of tiles, T at a time.
template <class Code, int M, int T>
void multiply_rows(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
                   int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  constexpr int kUsual = 32 / Code::kColumns;  // steps of a group of 32 columns
  const auto several = w.group == 32 ? block<Code, M, T, kUsual> : block<Code, M, T>;
  const auto single = w.group == 32 ? block<Code, M, 1, kUsual> : block<Code, M, 1>;
  int64_t tile = tile_begin;
  for (; tile + T <= tile_end; tile += T) several(x, first, w, bias, tile, 1, y, ldy);
  for (; tile < tile_end; ++tile) single(x, first, w, bias, tile, 1, y, ldy);
}

template <class Code, int T>
void one_row(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile,
             int64_t distance, float* y) {
  if constexpr (Code::kColumns == Q4::kColumns) {
    if (w.group == 32) return one_row_of_groups_of_32<Code, T>(x, w, bias, tile, distance, y);
  }
  block<Code, 1, T>(x, 0, w, bias, tile, distance, y, 0);
}

// A single row: streams of tiles that stay apart, so that each is long.
template <class Code>
void linear_row(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                int64_t tile_begin, int64_t tile_end, float* y) {
  const int64_t distance = (tile_end - tile_begin) / kTilesForOneRow;
  for (int64_t i = 0; i < distance; ++i) {
    one_row<Code, kTilesForOneRow>(x, w, bias, tile_begin + i, distance, y);
  }
  for (int64_t i = tile_begin + distance * kTilesForOneRow; i < tile_end; ++i) {
    one_row<Code, 1>(x, w, bias, i, 0, y);
  }
}

template <class Code>
void linear_q(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t ldy) {
  if (x.rows == 1) return linear_row<Code>(x, w, bias, tile_begin, tile_end, y);
  if (x.rows >= kLongBlock && w.group <= kColumnsTogether) {
    if constexpr (Code::kColumns == Q4::kColumns) {
      return linear_runs(x, w, bias, tile_begin, tile_end, y, ldy, linear_rows<Code>);
    }
    linear_rows<Code>(x, w, bias, tile_begin, tile_end, y, ldy);
    return;
  }
  // Two tiles stay in the cache while all rows pass over them.
  for (int64_t tile = tile_begin; tile < tile_end; tile += kTilesAtOnce) {
    const int64_t end = tile + kTilesAtOnce < tile_end ? tile + kTilesAtOnce : tile_end;
    int64_t i = 0;
    for (; i + kRowsAtOnce <= x.rows; i += kRowsAtOnce) {
      multiply_rows<Code, kRowsAtOnce, kTilesAtOnce>(x, i, w, bias, tile, end, y, ldy);
    }
    if (i + 2 <= x.rows) {
      multiply_rows<Code, 2, kTilesAtOnce>(x, i, w, bias, tile, end, y, ldy);
      i += 2;
    }
    if (i < x.rows) multiply_rows<Code, 1, kTilesAtOnce>(x, i, w, bias, tile, end, y, ldy);
  }
}

void linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  if (w.encoding != MatrixEncoding::q4_steps) {
    linear_q<Q4>(x, w, bias, tile_begin, tile_end, y, ldy);
  } else if (x.rows < kLongBlock) {
    linear_steps(x, w, bias, tile_begin, tile_end, y, ldy);
  } else {
    linear_runs(x, w, bias, tile_begin, tile_end, y, ldy, linear_steps);
  }
}

void linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  linear_q<Q8>(x, w, bias, tile_begin, tile_end, y, ldy);
}

}  // namespace
}  // namespace satchel

#include "table.inl"

namespace satchel {

constexpr KernelTable with_long_attention(KernelTable table) {
  table.attention = attention_by_length;
  return table;
}

constinit const KernelTable avx512_table = with_long_attention(make_table("avx512"));

}  // namespace satchel
