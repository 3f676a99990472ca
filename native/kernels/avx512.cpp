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
#include "avx512_groups.inl"
#include "avx512_pairs.inl"

namespace satchel {
namespace {

template <class Code>
void linear_q(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t ldy) {
  if (!is_long(x) || w.group > kColumnsTogether) {
    return linear_groups<Code>(x, w, bias, tile_begin, tile_end, y, ldy);
  }
  if constexpr (Code::kColumns == Q4::kColumns) {
    return linear_runs(x, w, bias, tile_begin, tile_end, y, ldy, linear_rows<Code>);
  }
  linear_rows<Code>(x, w, bias, tile_begin, tile_end, y, ldy);
}

void linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  if (w.encoding != MatrixEncoding::q4_steps) {
    linear_q<Q4>(x, w, bias, tile_begin, tile_end, y, ldy);
  } else if (!is_long(x)) {
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

constexpr KernelTable with_own(KernelTable table) {
  table.attention = attention_by_length;
  table.linear_q4_16 = linear_pairs<Q4>;
  table.linear_q8_16 = linear_pairs<Q8>;
  return table;
}

constinit const KernelTable avx512_table = with_own(make_table("avx512"));

}  // namespace satchel
