// Weights of 5 and 6 bits, and K-quants. Codes stay unsigned: they are small enough for maddubs,
// and the sums of the activations take their offset back. Included in avx2.cpp.

#include "packed_bits.h"

namespace satchel {
namespace {

template <class Layout>
struct Packed {
  static constexpr int64_t kColumnBytes = Layout::kColumnBytes;
  // Fours of columns whose pairs of products 16 bits hold.
  static constexpr int kFoursTogether = Layout::kProductsIn16Bits / 2;

  // The bytes of four columns of eight rows.
  static inline __m256i four(const __m256i* lines, int i) {
    if (i < Layout::kLines) return _mm256_and_si256(lines[i], _mm256_set1_epi8(Layout::kMask));
    __m256i found = _mm256_setzero_si256();
    SATCHEL_UNROLL
    for (int line = 0; line < Layout::kLines; ++line) {
      const auto piece = Layout::piece(i, line);
      if (piece.mask == 0) continue;
      const __m256i moved = _mm256_srli_epi16(lines[line], piece.down);
      const __m256i mask = _mm256_set1_epi8(static_cast<char>(piece.mask));
      found = _mm256_or_si256(found, _mm256_and_si256(moved, mask));
    }
    return found;
  }

  // A tile as bytes [cols/4][16][4].
  static void unpack(const uint8_t* codes, int64_t cols, uint8_t* out) {
    for (int64_t c = 0; c < cols; c += Layout::kColumns, codes += Layout::kStepBytes) {
      SATCHEL_UNROLL
      for (int half = 0; half < 64; half += 32) {
        __m256i lines[Layout::kLines];
        SATCHEL_UNROLL
        for (int line = 0; line < Layout::kLines; ++line) {
          lines[line] = load_bytes(codes + line * 64 + half);
        }
        SATCHEL_UNROLL
        for (int i = 0; i < Layout::kFours; ++i) {
          _mm256_store_si256(reinterpret_cast<__m256i*>(out + c * 16 + i * 64 + half),
                             four(lines, i));
        }
      }
    }
  }

  template <int M, int P>
  static inline void add(const uint8_t* codes, int64_t tile_bytes, const int8_t* x, int64_t stride,
                         int64_t begin, int64_t end, __m256i (*dots)[P]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int64_t c = begin; c < end; c += Layout::kColumns) {
      SATCHEL_UNROLL
      for (int p = 0; p < P; ++p) {
        const uint8_t* step = codes + c * kColumnBytes + p / 2 * tile_bytes + p % 2 * 32;
        __m256i lines[Layout::kLines];
        SATCHEL_UNROLL
        for (int line = 0; line < Layout::kLines; ++line)
          lines[line] = load_bytes(step + line * 64);
        SATCHEL_UNROLL
        for (int first = 0; first < Layout::kFours; first += kFoursTogether) {
          __m256i sums[M];
          SATCHEL_UNROLL
          for (int i = first; i < first + kFoursTogether; ++i) {
            const __m256i bytes = four(lines, i);
            SATCHEL_UNROLL
            for (int m = 0; m < M; ++m) {
              const __m256i pairs =
                  _mm256_maddubs_epi16(bytes, broadcast4(x + m * stride + c + 4 * i));
              sums[m] = i == first ? pairs : _mm256_add_epi16(sums[m], pairs);
            }
          }
          SATCHEL_UNROLL
          for (int m = 0; m < M; ++m) {
            dots[m][p] = _mm256_add_epi32(dots[m][p], _mm256_madd_epi16(sums[m], ones));
          }
        }
      }
    }
  }
};

// The same of codes that were unpacked to bytes, [cols/4][16][4]: for many rows.
template <class Code>
struct Unpacked : Code {
  static constexpr int64_t kColumnBytes = 16;

  template <int M, int P>
  static inline void add(const uint8_t* codes, int64_t tile_bytes, const int8_t* x, int64_t stride,
                         int64_t begin, int64_t end, __m256i (*dots)[P]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int64_t c = begin; c < end; c += 4 * Code::kFoursTogether) {
      SATCHEL_UNROLL
      for (int p = 0; p < P; ++p) {
        const uint8_t* bytes = codes + c * kColumnBytes + p / 2 * tile_bytes + p % 2 * 32;
        __m256i sums[M];
        SATCHEL_UNROLL
        for (int i = 0; i < Code::kFoursTogether; ++i) {
          const __m256i four = load_bytes(bytes + i * 64);
          SATCHEL_UNROLL
          for (int m = 0; m < M; ++m) {
            const __m256i pairs =
                _mm256_maddubs_epi16(four, broadcast4(x + m * stride + c + 4 * i));
            sums[m] = i == 0 ? pairs : _mm256_add_epi16(sums[m], pairs);
          }
        }
        SATCHEL_UNROLL
        for (int m = 0; m < M; ++m) {
          dots[m][p] = _mm256_add_epi32(dots[m][p], _mm256_madd_epi16(sums[m], ones));
        }
      }
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
  static constexpr bool kHasMinima = true;
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

}  // namespace
}  // namespace satchel
