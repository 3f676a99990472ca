// What the NEON tables share in multiplying quantised rows with a packed matrix.
// A vector of weights is the same four columns of four rows; a tile is four vectors.
// Included after lanes_neon.h.

#include "scales.inl"
#include "packed_bits.h"

namespace satchel {
namespace {

constexpr int64_t kVectorRows = 4;
constexpr int kQuarters = 4;  // vectors of four rows in a tile

// Four activations in every lane.
inline int8x16_t broadcast4(const int8_t* p) {
  typedef int32_t Four __attribute__((may_alias, aligned(1)));
  return vreinterpretq_s8_s32(vdupq_n_s32(*reinterpret_cast<const Four*>(p)));
}

// The codes of q4 and q8: how many columns a step of 64 bytes has, and what the codes' offset is
// after unpacking. Nibbles stay unsigned, and the sums of the activations take the offset back.
struct Q4Layout {
  template <int T>
  using Scales = HalfScales;
  static constexpr int64_t kColumnBytes = 8;
  static constexpr int kOffset = 8;
  static constexpr bool kHasMinima = false;
};
struct Q8Layout {
  template <int T>
  using Scales = HalfScales;
  static constexpr int64_t kColumnBytes = 16;
  static constexpr int kOffset = 0;
  static constexpr bool kHasMinima = false;
};
// What the encodings of linear_k add to how their codes are multiplied: see kernels.h.
template <class Codes>
struct HalfScaled5 : Codes {
  template <int T>
  using Scales = HalfScales;
  static constexpr int kOffset = 16;
  static constexpr bool kHasMinima = false;
};
template <class Codes>
struct SixBitScaled : Codes {
  template <int T>
  using Scales = SixBitScales<T>;
  static constexpr int kOffset = 0;
  static constexpr bool kHasMinima = true;
};
template <class Codes>
struct ByteScaled6 : Codes {
  template <int T>
  using Scales = ByteScales<T>;
  static constexpr int kOffset = 32;
  static constexpr bool kHasMinima = false;
};

inline int8x16_t low_nibbles(uint8x16_t bytes) {
  return vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15)));
}
inline int8x16_t high_nibbles(uint8x16_t bytes) {
  return vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4));
}
// A vector of each line of a step of 5 or 6 bits.
template <class Layout>
struct PackedLines {
  uint8x16_t lines[Layout::kLines];

  explicit PackedLines(const uint8_t* step) {
    SATCHEL_UNROLL
    for (int line = 0; line < Layout::kLines; ++line) lines[line] = vld1q_u8(step + line * 64);
  }
  // The bytes of the i-th four columns.
  int8x16_t four(int i) const {
    if (i < Layout::kLines) {
      return vreinterpretq_s8_u8(vandq_u8(lines[i], vdupq_n_u8(Layout::kMask)));
    }
    uint8x16_t found = vdupq_n_u8(0);
    SATCHEL_UNROLL
    for (int line = 0; line < Layout::kLines; ++line) {
      const auto piece = Layout::piece(i, line);
      if (piece.mask == 0) continue;
      const uint8x16_t moved = vshlq_u8(lines[line], vdupq_n_s8(static_cast<int8_t>(-piece.down)));
      found = vorrq_u8(found, vandq_u8(moved, vdupq_n_u8(static_cast<uint8_t>(piece.mask))));
    }
    return vreinterpretq_s8_u8(found);
  }
};

inline int8x16_t signed_bytes(uint8x16_t bytes) {
  return vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(0x80)));
}

// The four outputs of `vector`, as far as the matrix has these rows. One copy serves all blocks.
__attribute__((noinline)) void write_vector(F acc, float x_scale, const PackedMatrix& w,
                                            const float* bias, int64_t vector, float* y) {
  const int64_t row = vector * kVectorRows, n = w.rows - row;
  if (n <= 0) return;
  F offset = broadcast(0.0f);
  if (bias != nullptr) offset = n >= kLanes ? load(bias + row) : load_n(bias + row, n);
  const F result = acc * broadcast(x_scale) + offset;
  if (n >= kLanes) {
    store(y + row, result);
  } else {
    store_n(y + row, result, n);
  }
}

// What a block multiplies in a group: the codes of its first vector, the bytes from a tile to the
// next, and the first of its rows of activations.
struct Operands {
  const uint8_t* codes;
  int64_t tile_bytes;
  const int8_t* x;
  int64_t stride;

  const uint8_t* vector(int v) const {
    return codes + v / kQuarters * tile_bytes + v % kQuarters * 16;
  }
  uint8x16_t weights(int v) const { return vld1q_u8(vector(v)); }
};

// M rows of activations against V vectors of weights: half a tile, or whole tiles. Code::add adds
// the columns of a group.
template <class Code, int M, int V>
void block(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
           int64_t vector, float* y, int64_t ldy) {
  const int64_t groups = w.cols / w.group, tile_bytes = w.cols * Code::kColumnBytes;
  const int64_t tile = vector / kQuarters, quarter = vector % kQuarters;
  Operands operands{w.codes + tile * tile_bytes + quarter * 16, tile_bytes,
                    x.codes + first * x.stride, x.stride};
  typename Code::template Scales<(V + kQuarters - 1) / kQuarters> scales(w, tile);
  const int32_t* sums = x.sums + first * groups;
  F acc[M][V];
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) {
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) acc[m][v] = broadcast(0.0f);
  }
  for (int64_t g = 0; g < groups; ++g, ++sums) {
    int32x4_t dots[M][V];
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) {
        dots[m][v] = vdupq_n_s32(Code::kOffset == 0 ? 0 : -Code::kOffset * sums[m * groups]);
      }
    }
    Code::template add<M, V>(operands, w.group, dots);
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) {
      const F scale = scales.at(v / kQuarters, (quarter + v % kQuarters) * kVectorRows);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) acc[m][v] = fma(vcvtq_f32_s32(dots[m][v]), scale, acc[m][v]);
      if constexpr (Code::kHasMinima) {
        const F minimum = scales.minimum(v / kQuarters, (quarter + v % kQuarters) * kVectorRows);
        SATCHEL_UNROLL
        for (int m = 0; m < M; ++m) {
          const auto sum = static_cast<float>(sums[m * groups]);
          acc[m][v] = fma(minimum, broadcast(-sum), acc[m][v]);
        }
      }
    }
    scales.next();
  }
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) {
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) {
      write_vector(acc[m][v], x.scales[first + m], w, bias, vector + v, y + (first + m) * ldy);
    }
  }
}

// M rows of activations against tiles [tile, tile_end), V vectors at a time.
template <class Code, int M, int V>
void multiply_rows(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
                   int64_t tile, int64_t tile_end, float* y, int64_t ldy) {
  int64_t vector = tile * kQuarters;
  const int64_t end = tile_end * kQuarters;
  for (; vector + V <= end; vector += V) block<Code, M, V>(x, first, w, bias, vector, y, ldy);
  if constexpr (V > kQuarters) {
    for (; vector < end; vector += kQuarters) {
      block<Code, M, kQuarters>(x, first, w, bias, vector, y, ldy);
    }
  }
}

// A single row takes `OneRow` vectors at a time; of more rows, `Rows` share `Block` vectors.
template <class Code, int OneRow, int Rows, int Block>
void linear_rows(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                 int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  if (x.rows == 1) {
    multiply_rows<Code, 1, OneRow>(x, 0, w, bias, tile_begin, tile_end, y, ldy);
    return;
  }
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    int64_t i = 0;
    for (; i + Rows <= x.rows; i += Rows) {
      multiply_rows<Code, Rows, Block>(x, i, w, bias, tile, tile + 1, y, ldy);
    }
    if constexpr (Rows > 2) {
      if (i + 2 <= x.rows) {
        multiply_rows<Code, 2, kQuarters>(x, i, w, bias, tile, tile + 1, y, ldy);
        i += 2;
      }
    }
    for (; i < x.rows; ++i) {
      multiply_rows<Code, 1, kQuarters>(x, i, w, bias, tile, tile + 1, y, ldy);
    }
  }
}

}  // namespace
}  // namespace satchel
