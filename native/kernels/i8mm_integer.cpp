// Layers of unsigned codes and signed 8-bit weights with Arm's matrix instructions: usmmla
// multiplies two rows of eight codes by two rows of eight weights. A single row takes usdot.

#include "lanes_neon.h"

// Of what is included, only the activations and the last steps of a result are used here.
#pragma GCC diagnostic ignored "-Wunused-function"

#include "elementwise.inl"
#include "activate.inl"
#include "linear_float.inl"
#include "integer_finish.inl"
#include "dots_dotprod.h"
#include "linear_i8.inl"

namespace satchel {
namespace {

constexpr int kTilePairs = kTileRows / 2;  // pairs of outputs

// A step has four columns of each output; two of them, or one and zeros, are eight of each.
inline void pair_steps(int8x16_t left, int8x16_t right, int8x16_t* pairs) {
  const int32x4_t a = vreinterpretq_s32_s8(left), b = vreinterpretq_s32_s8(right);
  pairs[0] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
  pairs[1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
}

inline uint8x8_t last_four(const uint8_t* p) {
  uint32_t four;
  std::memcpy(&four, p, sizeof four);
  return vcreate_u8(four);
}

// The products of P pairs of rows with 16 outputs: [2 rows][2 outputs] in each vector of dots.
template <int P>
inline void add_pairs(const uint8x16_t* codes, const int8x16_t* weights,
                      int32x4_t (*dots)[kTilePairs]) {
  SATCHEL_UNROLL
  for (int r = 0; r < kTilePairs; ++r) {
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) dots[p][r] = vusmmlaq_s32(dots[p][r], codes[p], weights[r]);
  }
}

// M rows against a tile. A last row without another is multiplied twice.
template <int M>
inline void block_of_pairs(const CodeWindows& x, int64_t steps, const uint8_t* first,
                           const IntegerMatrix& w, const IntegerResult& result, int64_t tile,
                           int32_t* sums) {
  constexpr int P = (M + 1) / 2;
  int32x4_t dots[P][kTilePairs];
  SATCHEL_UNROLL
  for (int r = 0; r < kTilePairs; r += 2) {
    const I four = first_sums(result, w, tile * kTileRows + r * 2);
    const int64x2_t halves = vreinterpretq_s64_s32((int32x4_t)four);
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) {
      dots[p][r] = vreinterpretq_s32_s64(vdupq_laneq_s64(halves, 0));
      dots[p][r + 1] = vreinterpretq_s32_s64(vdupq_laneq_s64(halves, 1));
    }
  }
  const uint8_t* rows[M];
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) rows[m] = first + m * x.pixel_step;
  const int8_t* weights = w.codes + tile * w.steps * 4 * kTileRows;
  uint8x16_t codes[P];
  int8x16_t pairs[kTilePairs];
  for (int64_t left = x.kernel_rows;;) {
    int64_t s = 0;
    for (; s + 2 <= steps; s += 2, weights += 8 * kTileRows) {
      SATCHEL_UNROLL
      for (int p = 0; p < P; ++p) {
        codes[p] =
            vcombine_u8(vld1_u8(rows[2 * p]), vld1_u8(rows[2 * p + 1 < M ? 2 * p + 1 : M - 1]));
      }
      SATCHEL_UNROLL
      for (int v = 0; v < kTileVectors; ++v) {
        pair_steps(vld1q_s8(weights + v * 16), vld1q_s8(weights + 4 * kTileRows + v * 16),
                   pairs + 2 * v);
      }
      add_pairs<P>(codes, pairs, dots);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) rows[m] += 8;
    }
    if (s < steps) {
      SATCHEL_UNROLL
      for (int p = 0; p < P; ++p) {
        codes[p] =
            vcombine_u8(last_four(rows[2 * p]), last_four(rows[2 * p + 1 < M ? 2 * p + 1 : M - 1]));
      }
      SATCHEL_UNROLL
      for (int v = 0; v < kTileVectors; ++v) {
        pair_steps(vld1q_s8(weights + v * 16), vdupq_n_s8(0), pairs + 2 * v);
      }
      add_pairs<P>(codes, pairs, dots);
      weights += 4 * kTileRows;
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) rows[m] += 4;
    }
    if (--left == 0) break;
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) rows[m] += x.pitch - 4 * steps;
  }
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) {
    SATCHEL_UNROLL
    for (int r = 0; r < kTilePairs; ++r) {
      const int32x4_t four = dots[m / 2][r];
      vst1_s32(sums + m * kTileRows + 2 * r, m % 2 ? vget_high_s32(four) : vget_low_s32(four));
    }
  }
}

struct PairBlocks {
  template <int M, int T>
  static inline void add_up(const CodeWindows& x, int64_t steps, const uint8_t* first,
                            const IntegerMatrix& w, const IntegerResult& result, int64_t tile,
                            int32_t* sums) {
    static_assert(T == 1);
    if constexpr (M == 1) {
      integer_block<1, 1>(x, steps, first, w, result, tile, sums);
    } else {
      block_of_pairs<M>(x, steps, first, w, result, tile, sums);
    }
  }
};

}  // namespace

void i8mm_conv_i8(const CodeWindows& x, const IntegerMatrix& w, const IntegerResult& result,
                  int64_t tile_begin, int64_t tile_end) {
  add_up_windows<PairBlocks>(x, w, result, tile_begin, tile_end);
}

void i8mm_linear_i8(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                    const IntegerResult& result, int64_t tile_begin, int64_t tile_end) {
  i8mm_conv_i8({x, 1, m, 0, ldx, 1, 0}, w, result, tile_begin, tile_end);
}

}  // namespace satchel
