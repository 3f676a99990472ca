// The NEON table for any 64-bit Arm: bytes are multiplied by smlal, which adds up in 16 bits.

#include "lanes_neon.h"

#include "elementwise.inl"
#include "quantize.inl"
#include "activate.inl"
#include "softmax.inl"
#include "linear_float.inl"
#include "integer_finish.inl"
#include "codes.inl"
#include "dots_neon.h"
#include "linear_i8.inl"
#include "depthwise.inl"
#include "depthwise_i8.inl"
#include "attention.inl"
#include "linear_neon.inl"

namespace satchel {
namespace {

// Sums of a vector of weights in 16 bits: two rows in each half, four lanes to a row.
struct Halves {
  int16x8_t first, second;
};

inline void add_products(Halves& sums, int8x16_t weights, int8x16_t x) {
  sums.first = vmlal_s8(sums.first, vget_low_s8(weights), vget_low_s8(x));
  sums.second = vmlal_high_s8(sums.second, weights, x);
}

struct Q4 : Q4Layout {
  // At most four steps: a lane takes 8 products of at most 15 * 127, and two such lanes are added
  // before they are widened.
  template <int M, int V>
  static inline void add_steps(Operands& o, int64_t steps, int32x4_t (*dots)[V]) {
    Halves sums[M][V];
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) sums[m][v] = {vdupq_n_s16(0), vdupq_n_s16(0)};
    }
    for (; steps > 0; --steps, o.codes += 64, o.x += 8) {
      int8x16_t low_x[M], high_x[M];
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        low_x[m] = broadcast4(o.x + m * o.stride);
        high_x[m] = broadcast4(o.x + m * o.stride + 4);
      }
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) {
        const uint8x16_t bytes = o.weights(v);
        const int8x16_t low = low_nibbles(bytes), high = high_nibbles(bytes);
        SATCHEL_UNROLL
        for (int m = 0; m < M; ++m) {
          add_products(sums[m][v], low, low_x[m]);
          add_products(sums[m][v], high, high_x[m]);
        }
      }
    }
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) {
        dots[m][v] = vpadalq_s16(dots[m][v], vpaddq_s16(sums[m][v].first, sums[m][v].second));
      }
    }
  }

  template <int M, int V>
  static inline void add(Operands& o, int64_t columns, int32x4_t (*dots)[V]) {
    for (; columns > 0; columns -= 32) add_steps<M, V>(o, columns < 32 ? columns / 8 : 4, dots);
  }
};

struct Q4Steps : Q4 {
  template <int T>
  using Scales = StepScales;
};

// A lane of 16 bits holds two products of signed bytes.
struct Q8 : Q8Layout {
  template <int M, int V, int Steps>
  static inline void add_steps(Operands& o, int32x4_t (*first)[V], int32x4_t (*second)[V]) {
    Halves sums[M][V];
    SATCHEL_UNROLL
    for (int s = 0; s < Steps; ++s, o.codes += 64, o.x += 4) {
      int8x16_t x[M];
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) x[m] = broadcast4(o.x + m * o.stride);
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) {
        const int8x16_t weights = signed_bytes(o.weights(v));
        SATCHEL_UNROLL
        for (int m = 0; m < M; ++m) {
          if (s == 0) sums[m][v] = {vdupq_n_s16(0), vdupq_n_s16(0)};
          add_products(sums[m][v], weights, x[m]);
        }
      }
    }
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) {
        first[m][v] = vpadalq_s16(first[m][v], sums[m][v].first);
        second[m][v] = vpadalq_s16(second[m][v], sums[m][v].second);
      }
    }
  }

  template <int M, int V>
  static inline void add(Operands& o, int64_t columns, int32x4_t (*dots)[V]) {
    int32x4_t first[M][V], second[M][V];
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) first[m][v] = second[m][v] = vdupq_n_s32(0);
    }
    for (; columns >= 8; columns -= 8) add_steps<M, V, 2>(o, first, second);
    if (columns > 0) add_steps<M, V, 1>(o, first, second);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) {
        dots[m][v] = vaddq_s32(dots[m][v], vpaddq_s32(first[m][v], second[m][v]));
      }
    }
  }
};

// All products of a step of 5 or 6 bits fit in 16 bits.
template <class Layout>
struct Packed {
  static constexpr int64_t kColumnBytes = Layout::kColumnBytes;
  static_assert(Layout::kFours <= Layout::kProductsIn16Bits);

  template <int M, int V>
  static inline void add(Operands& o, int64_t columns, int32x4_t (*dots)[V]) {
    for (; columns > 0; columns -= Layout::kColumns) {
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) {
        const PackedLines<Layout> lines(o.vector(v));
        Halves sums[M];
        SATCHEL_UNROLL
        for (int m = 0; m < M; ++m) sums[m] = {vdupq_n_s16(0), vdupq_n_s16(0)};
        SATCHEL_UNROLL
        for (int i = 0; i < Layout::kFours; ++i) {
          const int8x16_t weights = lines.four(i);
          SATCHEL_UNROLL
          for (int m = 0; m < M; ++m) {
            add_products(sums[m], weights, broadcast4(o.x + m * o.stride + 4 * i));
          }
        }
        SATCHEL_UNROLL
        for (int m = 0; m < M; ++m) {
          const int32x4_t both =
              vpaddq_s32(vpaddlq_s16(sums[m].first), vpaddlq_s16(sums[m].second));
          dots[m][v] = vaddq_s32(dots[m][v], both);
        }
      }
      o.codes += Layout::kStepBytes, o.x += Layout::kColumns;
    }
  }
};

void linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  const auto linear = w.encoding == MatrixEncoding::q4_steps ? linear_rows<Q4Steps, 4, 2, 4>
                                                             : linear_rows<Q4, 4, 2, 4>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

void linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  linear_rows<Q8, 8, 2, 4>(x, w, bias, tile_begin, tile_end, y, ldy);
}

void linear_k(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t ldy) {
  const auto linear =
      w.encoding == MatrixEncoding::q4_k   ? linear_rows<SixBitScaled<Q4>, 4, 2, 4>
      : w.encoding == MatrixEncoding::q5_k ? linear_rows<SixBitScaled<Packed<Bits5>>, 4, 2, 4>
      : w.encoding == MatrixEncoding::q6_k ? linear_rows<ByteScaled6<Packed<Bits6>>, 4, 2, 4>
                                           : linear_rows<HalfScaled5<Packed<Bits5>>, 4, 2, 4>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

}  // namespace
}  // namespace satchel

#include "table.inl"

namespace satchel {

constinit const KernelTable neon_table = make_table("neon");

}  // namespace satchel
