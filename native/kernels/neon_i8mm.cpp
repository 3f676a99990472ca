// NEON with the matrix instructions: smmla multiplies two rows of eight columns by two others.
//
// For blocks of activations, a tile's weights are unpacked to signed bytes in a buffer that stays
// in the first-level cache while all rows pass over it: eight columns of a row side by side, a
// pair of rows to a vector. Few rows take the dot product, which unpacks in registers.
// The sums are the same integers and are scaled in the same order, so both give the same floats.

#include "lanes_neon.h"

#include "linear_neon.inl"
#include "linear_dot.inl"

namespace satchel {
namespace {

constexpr int64_t kChunkColumns = 512;  // weights unpacked at a time
constexpr int64_t kPassRows = 64;       // rows of activations that pass over a tile together
constexpr int64_t kFewestRows = 10;     // below this, the dot product takes fewer instructions
constexpr int kTilePairs = 8;           // pairs of rows in a tile
constexpr int kPairsAtOnce = 2;         // pairs of activation rows; more sums do not fit

struct Workspace {
  // [cols/8][pair of rows][2][8]
  int8_t weights[kChunkColumns / 8 * kTilePairs * 16];
  // What a pair of activation rows has gathered with a pair of weight rows, [2][2] in a vector:
  // the sums of the group that is not finished yet, and the scaled sums of those that are.
  int32x4_t dots[kPassRows / 2][kTilePairs];
  F acc[kPassRows / 2][kTilePairs];
};

// Four columns of four rows twice, to eight columns of each row.
inline void store_pairs(int8_t* out, int8x16_t left, int8x16_t right) {
  const int32x4_t a = vreinterpretq_s32_s8(left), b = vreinterpretq_s32_s8(right);
  vst1q_s8(out, vreinterpretq_s8_s32(vzip1q_s32(a, b)));
  vst1q_s8(out + 16, vreinterpretq_s8_s32(vzip2q_s32(a, b)));
}

// q4_min's codes count from 0, q4's from Zero = 8.
template <int Zero>
struct Q4Pairs : Q4Dot {
  using Dot = Q4Dot;
  static void unpack(const uint8_t* tile_codes, int64_t first, int64_t columns, int8_t* out) {
    const int8x16_t offset = vdupq_n_s8(Zero);
    const uint8_t* codes = tile_codes + first * 8;
    for (int64_t c = 0; c < columns; c += 8, codes += 64, out += 128) {
      SATCHEL_UNROLL
      for (int v = 0; v < kQuarters; ++v) {
        const uint8x16_t bytes = vld1q_u8(codes + v * 16);
        store_pairs(out + v * 32, vsubq_s8(low_nibbles(bytes), offset),
                    vsubq_s8(high_nibbles(bytes), offset));
      }
    }
  }
};

struct Q4StepsPairs : Q4Pairs<8> {
  using Dot = Q4StepsDot;
  template <int T>
  using Scales = StepScales;
};

struct Q4KPairs : SixBitScaled<Q4Pairs<0>> {
  using Dot = Q4KDot;
};

// Codes of 5 and 6 bits count from `Zero`, which is 0 for those that count from 0.
template <class Layout, class DotCode, int Zero = DotCode::kOffset>
struct PackedPairs : DotCode {
  using Dot = DotCode;
  static void unpack(const uint8_t* tile_codes, int64_t first, int64_t columns, int8_t* out) {
    const int8x16_t offset = vdupq_n_s8(Zero);
    const uint8_t* codes = tile_codes + first * Layout::kColumnBytes;
    for (int64_t c = 0; c < columns; c += Layout::kColumns, codes += Layout::kStepBytes) {
      SATCHEL_UNROLL
      for (int v = 0; v < kQuarters; ++v) {
        const PackedLines<Layout> lines(codes + v * 16);
        SATCHEL_UNROLL
        for (int i = 0; i < Layout::kFours; i += 2) {
          store_pairs(out + i * 64 + v * 32, vsubq_s8(lines.four(i), offset),
                      vsubq_s8(lines.four(i + 1), offset));
        }
      }
      out += Layout::kColumns * kTileRows;
    }
  }
};
using Q5Pairs = PackedPairs<Bits5, Q5Dot>;
using Q5MinPairs = PackedPairs<Bits5, Q5Dot, 0>;
using Q5KPairs = PackedPairs<Bits5, Q5KDot>;
using Q6KPairs = PackedPairs<Bits6, Q6KDot>;

struct Q8Pairs : Q8Dot {
  using Dot = Q8Dot;
  static void unpack(const uint8_t* tile_codes, int64_t first, int64_t columns, int8_t* out) {
    const uint8_t* codes = tile_codes + first * 16;
    for (int64_t c = 0; c < columns; c += 8, codes += 128, out += 128) {
      SATCHEL_UNROLL
      for (int v = 0; v < kQuarters; ++v) {
        store_pairs(out + v * 32, signed_bytes(vld1q_u8(codes + v * 16)),
                    signed_bytes(vld1q_u8(codes + 64 + v * 16)));
      }
    }
  }
};

template <int P>
inline void multiply8(const int8_t* weights, const int8x16_t* x, int32x4_t (*dots)[kTilePairs]) {
  SATCHEL_UNROLL
  for (int r = 0; r < kTilePairs; ++r) {
    const int8x16_t pair = vld1q_s8(weights + r * 16);
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) dots[p][r] = vmmlaq_s32(dots[p][r], x[p], pair);
  }
}

// The columns of a tile that are unpacked: whole groups, or a piece of one.
struct Chunk {
  int64_t begin, end;
  int64_t piece;          // columns that share a scale
  bool starts, finishes;  // whether groups begin, and whether they end, in this chunk
  int64_t group;          // the first
};

inline Chunk chunk_at(int64_t begin, const PackedMatrix& w) {
  const int64_t group = begin / w.group, group_end = (group + 1) * w.group;
  const int64_t whole_groups = kChunkColumns / w.group * w.group;
  const int64_t limit = whole_groups > 0 ? w.cols : group_end;
  const int64_t wanted = begin + (whole_groups > 0 ? whole_groups : kChunkColumns);
  const int64_t end = wanted < limit ? wanted : limit;
  return {begin,
          end,
          w.group < end - begin ? w.group : end - begin,
          begin % w.group == 0,
          end % w.group == 0,
          group};
}

// Adds `columns` columns of 2P rows of activations by a tile.
template <int P>
inline void multiply_piece(const int8_t* x, int64_t stride, const int8_t* weights, int64_t columns,
                           int32x4_t (*dots)[kTilePairs]) {
  int8x16_t first[P], second[P];
  for (; columns >= 16; columns -= 16, x += 16, weights += 2 * kTilePairs * 16) {
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) {
      const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(x + 2 * p * stride));
      const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(x + (2 * p + 1) * stride));
      first[p] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
      second[p] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
    }
    multiply8<P>(weights, first, dots);
    multiply8<P>(weights + kTilePairs * 16, second, dots);
  }
  if (columns > 0) {
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) {
      first[p] = vcombine_s8(vld1_s8(x + 2 * p * stride), vld1_s8(x + (2 * p + 1) * stride));
    }
    multiply8<P>(weights, first, dots);
  }
}

// Each number of a vector of four rows twice, by pairs of rows.
struct RowPairs {
  F low, high;
  explicit RowPairs(F rows) {
    const float64x2_t four = vreinterpretq_f64_f32(rows);
    low = vreinterpretq_f32_f64(vdupq_laneq_f64(four, 0));
    high = vreinterpretq_f32_f64(vdupq_laneq_f64(four, 1));
  }
};

// Scales the sums of a group, adds them up, and clears them for the next group. `sums` are those of
// the group's activations, `groups` from one row's to the next's.
template <int P, class Scales>
inline void scale_group(const Scales& scales, const int32_t* sums, int64_t groups,
                        int32x4_t (*dots)[kTilePairs], F (*acc)[kTilePairs]) {
  SATCHEL_UNROLL
  for (int r = 0; r < kTilePairs; r += 2) {
    const RowPairs scale(scales.at(0, r * 2));
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) {
      acc[p][r] = fma(vcvtq_f32_s32(dots[p][r]), scale.low, acc[p][r]);
      acc[p][r + 1] = fma(vcvtq_f32_s32(dots[p][r + 1]), scale.high, acc[p][r + 1]);
      dots[p][r] = dots[p][r + 1] = vdupq_n_s32(0);
    }
    if constexpr (requires { scales.minimum(0); }) {
      const RowPairs minimum(scales.minimum(0, r * 2));
      SATCHEL_UNROLL
      for (int p = 0; p < P; ++p) {
        const float first = -static_cast<float>(sums[2 * p * groups]),
                    second = -static_cast<float>(sums[(2 * p + 1) * groups]);
        const F both = {first, first, second, second};
        acc[p][r] = fma(minimum.low, both, acc[p][r]);
        acc[p][r + 1] = fma(minimum.high, both, acc[p][r + 1]);
      }
    }
  }
}

// 2P rows of activations against a tile's chunk; what they gathered so far is in the last two.
template <int P, class Scales>
void multiply_chunk(const Chunk& chunk, Scales scales, const QuantizedRows& rows, int64_t row,
                    const int8_t* weights, int32x4_t (*saved)[kTilePairs], F (*acc)[kTilePairs]) {
  const int64_t stride = rows.stride, groups = rows.cols / rows.group;
  const int8_t* x = rows.codes + row * stride;
  const int32_t* sums = rows.sums + row * groups + chunk.group;
  int32x4_t dots[P][kTilePairs];
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) {
    SATCHEL_UNROLL
    for (int r = 0; r < kTilePairs; ++r) {
      dots[p][r] = chunk.starts ? vdupq_n_s32(0) : saved[p][r];
    }
  }
  x += chunk.begin;
  for (int64_t c = chunk.begin; c < chunk.end; c += chunk.piece) {
    multiply_piece<P>(x, stride, weights, chunk.piece, dots);
    x += chunk.piece;
    weights += chunk.piece * kTileRows;
    if (chunk.finishes) scale_group<P>(scales, sums, groups, dots, acc);
    scales.next();
    ++sums;
  }
  if (chunk.finishes) return;
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) {
    SATCHEL_UNROLL
    for (int r = 0; r < kTilePairs; ++r) saved[p][r] = dots[p][r];
  }
}

// `rows` rows of activations, an even number, against one tile.
template <class Code>
void multiply_tile(const QuantizedRows& x, int64_t first, int64_t rows, const PackedMatrix& w,
                   const float* bias, int64_t tile, float* y, int64_t ldy, Workspace& work) {
  const int64_t pairs = rows / 2;
  const uint8_t* codes = w.codes + tile * w.cols * Code::kColumnBytes;
  std::memset(work.acc, 0, static_cast<size_t>(pairs) * sizeof work.acc[0]);
  for (int64_t begin = 0; begin < w.cols;) {
    const Chunk chunk = chunk_at(begin, w);
    const typename Code::template Scales<1> scales(w, tile, 1, chunk.group);
    Code::unpack(codes, begin, chunk.end - begin, work.weights);
    int64_t pair = 0;
    for (; pair + kPairsAtOnce <= pairs; pair += kPairsAtOnce) {
      multiply_chunk<kPairsAtOnce>(chunk, scales, x, first + 2 * pair, work.weights,
                                   work.dots + pair, work.acc + pair);
    }
    if (pair < pairs) {
      multiply_chunk<1>(chunk, scales, x, first + 2 * pair, work.weights, work.dots + pair,
                        work.acc + pair);
    }
    begin = chunk.end;
  }
  for (int64_t pair = 0; pair < pairs; ++pair) {
    for (int v = 0; v < kQuarters; ++v) {
      const float64x2_t a = vreinterpretq_f64_f32(work.acc[pair][2 * v]);
      const float64x2_t b = vreinterpretq_f64_f32(work.acc[pair][2 * v + 1]);
      const F results[2] = {vreinterpretq_f32_f64(vzip1q_f64(a, b)),
                            vreinterpretq_f32_f64(vzip2q_f64(a, b))};
      for (int i = 0; i < 2; ++i) {
        const int64_t row = first + 2 * pair + i;
        write_vector(results[i], x.scales[row], w, bias, tile * kQuarters + v, y + row * ldy);
      }
    }
  }
}

template <class Code>
void linear_pairs(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                  int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  // A group of q8 may end between two steps of eight columns.
  if (x.rows < kFewestRows || w.group % 8 != 0) {
    linear_dot<typename Code::Dot>(x, w, bias, tile_begin, tile_end, y, ldy);
    return;
  }
  Workspace work;
  const int64_t paired = x.rows / 2 * 2;
  for (int64_t first = 0; first < paired; first += kPassRows) {
    const int64_t rows = first + kPassRows < paired ? kPassRows : paired - first;
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      multiply_tile<Code>(x, first, rows, w, bias, tile, y, ldy, work);
    }
  }
  if (paired < x.rows) {
    multiply_rows<typename Code::Dot, 1, 8>(x, paired, w, bias, tile_begin, tile_end, y, ldy);
  }
}

}  // namespace

void i8mm_linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                    int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  const auto run = w.encoding == MatrixEncoding::q4_min     ? linear_pairs<Q4Pairs<0>>
                   : w.encoding == MatrixEncoding::q4_steps ? linear_pairs<Q4StepsPairs>
                                                            : linear_pairs<Q4Pairs<8>>;
  run(x, w, bias, tile_begin, tile_end, y, ldy);
}

void i8mm_linear_k(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                   int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  const auto run = w.encoding == MatrixEncoding::q4_k     ? linear_pairs<Q4KPairs>
                   : w.encoding == MatrixEncoding::q5_k   ? linear_pairs<Q5KPairs>
                   : w.encoding == MatrixEncoding::q6_k   ? linear_pairs<Q6KPairs>
                   : w.encoding == MatrixEncoding::q5_min ? linear_pairs<Q5MinPairs>
                                                          : linear_pairs<Q5Pairs>;
  run(x, w, bias, tile_begin, tile_end, y, ldy);
}

void i8mm_linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                    int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  linear_pairs<Q8Pairs>(x, w, bias, tile_begin, tile_end, y, ldy);
}

}  // namespace satchel
