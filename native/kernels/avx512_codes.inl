// How each encoding adds a step of a tile to the dot products of M rows, and its columns as bytes.
// Included in avx512.cpp.

#include "packed_bits.h"

namespace satchel {
namespace {

struct Q4 {
  template <int T>
  using Scales = HalfScales;
  static constexpr int kColumns = 8, kStepBytes = 64;
  static constexpr int kUsualGroup = 32, kSmallestGroup = 8;
  static constexpr int kOffset = 8;
  static constexpr bool kHasMinima = false, kMayHaveRuns = true;

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
  template <int T>
  using Scales = HalfScales;
  static constexpr int kColumns = 4, kStepBytes = 64;
  static constexpr int kUsualGroup = 32, kSmallestGroup = 4;
  static constexpr int kOffset = 128;
  static constexpr bool kHasMinima = false, kMayHaveRuns = false;

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

template <class Layout>
struct Packed : Layout {
  using Layout::kColumns, Layout::kFours, Layout::kLines, Layout::kStepBytes;
  static constexpr int kUsualGroup = kColumns, kSmallestGroup = kColumns;
  static constexpr bool kMayHaveRuns = false;

  // The bytes of four columns.
  static inline __m512i four(const __m512i* lines, int i) {
    if (i < kLines) return _mm512_and_si512(lines[i], _mm512_set1_epi8(Layout::kMask));
    __m512i found = _mm512_setzero_si512();
    SATCHEL_UNROLL
    for (int line = 0; line < kLines; ++line) {
      const auto piece = Layout::piece(i, line);
      if (piece.mask == 0) continue;
      const __m512i moved = _mm512_srli_epi16(lines[line], static_cast<unsigned>(piece.down));
      constexpr int kOrAnd = 0xf8;  // a | (b & c)
      const __m512i mask = _mm512_set1_epi8(static_cast<char>(piece.mask));
      found = _mm512_ternarylogic_epi32(found, moved, mask, kOrAnd);
    }
    return found;
  }

  static inline void load_lines(const uint8_t* codes, __m512i* lines) {
    SATCHEL_UNROLL
    for (int line = 0; line < kLines; ++line) lines[line] = load_bytes(codes + line * 64);
  }

  static const uint8_t* bytes_of(const PackedMatrix& w, int64_t tile, int64_t first,
                                 int64_t columns, uint8_t* out) {
    const uint8_t* codes = w.codes + (tile * w.cols + first) / kColumns * kStepBytes;
    for (int64_t c = 0; c < columns; c += kColumns, codes += kStepBytes) {
      __m512i lines[kLines];
      load_lines(codes, lines);
      SATCHEL_UNROLL
      for (int i = 0; i < kFours; ++i, out += 64) _mm512_store_si512(out, four(lines, i));
    }
    return out - columns * 16;
  }

  template <int M>
  static inline void add(const uint8_t* codes, const int8_t* x, int64_t stride, __m512i* dots) {
    __m512i lines[kLines];
    load_lines(codes, lines);
    SATCHEL_UNROLL
    for (int i = 0; i < kFours; ++i) {
      const __m512i bytes = four(lines, i);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) accumulate(dots[m], bytes, broadcast4(x + m * stride + 4 * i));
    }
  }
};

struct Q5 : Packed<Bits5> {
  template <int T>
  using Scales = HalfScales;
  static constexpr int kOffset = 16;
  static constexpr bool kHasMinima = false;
};

struct Q4K : Q4 {
  template <int T>
  using Scales = SixBitScales<T>;
  static constexpr int kOffset = 0;
  static constexpr bool kHasMinima = true, kMayHaveRuns = false;
};

struct Q5K : Packed<Bits5> {
  template <int T>
  using Scales = SixBitScales<T>;
  static constexpr int kOffset = 0;
  static constexpr bool kHasMinima = true;
};

struct Q6K : Packed<Bits6> {
  template <int T>
  using Scales = ByteScales<T>;
  static constexpr int kOffset = 32;
  static constexpr bool kHasMinima = false;
};

// Adds what the minima of a group give: minus their products with the sum of its activations.
template <class Code, class Scales>
inline F with_minimum(const Scales& scales, int t, int32_t sum, F acc) {
  if constexpr (!Code::kHasMinima)
    return acc;
  else
    return fma(scales.minimum(t), broadcast(-static_cast<float>(sum)), acc);
}

}  // namespace
}  // namespace satchel
