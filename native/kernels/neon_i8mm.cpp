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
constexpr int64_t kFewestRows = 8;      // below this, the dot product takes fewer instructions
constexpr int kTilePairs = 8;           // pairs of rows in a tile
constexpr int kBlockPairs = 4;          // of those, as many as fit in the registers

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

struct Q4Pairs : Q4Dot {
  using Dot = Q4Dot;
  static void unpack(const uint8_t* tile_codes, int64_t first, int64_t columns, int8_t* out) {
    const int8x16_t offset = vdupq_n_s8(8);
    const uint8_t* codes = tile_codes + first * 8;
    for (int64_t i = 0; i < columns / 8 * 4; ++i) {
      const uint8x16_t bytes = vld1q_u8(codes + i * 16);
      store_pairs(out + i * 32, vsubq_s8(low_nibbles(bytes), offset),
                  vsubq_s8(high_nibbles(bytes), offset));
    }
  }
};

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

// P pairs of activation rows, from columns that start at `x`.
template <int P>
struct Activations {
  const int8_t* x;
  int64_t stride;

  const int8_t* row(int i, int64_t c) const { return x + i * stride + c; }

  // Eight columns of each pair, and with 16 columns the next eight.
  void load16(int64_t c, int8x16_t* first, int8x16_t* second) const {
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) {
      const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(row(2 * p, c)));
      const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(row(2 * p + 1, c)));
      first[p] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
      second[p] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
    }
  }
  void load8(int64_t c, int8x16_t* first) const {
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) {
      first[p] = vcombine_s8(vld1_s8(row(2 * p, c)), vld1_s8(row(2 * p + 1, c)));
    }
  }
};

template <int P>
inline void multiply8(const int8_t* weights, const int8x16_t* x, int32x4_t (*dots)[kBlockPairs]) {
  SATCHEL_UNROLL
  for (int r = 0; r < kBlockPairs; ++r) {
    const int8x16_t pair = vld1q_s8(weights + r * 16);
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) dots[p][r] = vmmlaq_s32(dots[p][r], x[p], pair);
  }
}

// The unpacked columns of a tile: [begin, end) of the matrix.
struct Chunk {
  int64_t begin, end;
  const uint16_t* scales;  // of the tile: [groups][16]
  int64_t group;
};

// 2P rows of activations, from row 2 * pair of the pass, against half a tile's chunk.
template <int P>
inline void multiply_chunk(const Chunk& chunk, const Activations<P>& x, int64_t pair, int half,
                           Workspace& work) {
  int32x4_t dots[P][kBlockPairs];
  F acc[P][kBlockPairs];
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) {
    SATCHEL_UNROLL
    for (int r = 0; r < kBlockPairs; ++r) {
      dots[p][r] = work.dots[pair + p][half * kBlockPairs + r];
      acc[p][r] = work.acc[pair + p][half * kBlockPairs + r];
    }
  }
  for (int64_t c = chunk.begin; c < chunk.end;) {
    const int64_t group = c / chunk.group, group_end = (group + 1) * chunk.group;
    const int64_t end = group_end < chunk.end ? group_end : chunk.end;
    const int8_t* weights = work.weights + (c - chunk.begin) * 16 + half * kBlockPairs * 16;
    int8x16_t first[P], second[P];
    for (; c + 16 <= end; c += 16, weights += 2 * kTilePairs * 16) {
      x.load16(c, first, second);
      multiply8<P>(weights, first, dots);
      multiply8<P>(weights + kTilePairs * 16, second, dots);
    }
    if (c < end) {
      x.load8(c, first);
      multiply8<P>(weights, first, dots);
      c += 8;
    }
    if (c < group_end) break;  // the next chunk continues this group
    SATCHEL_UNROLL
    for (int v = 0; v < kBlockPairs / 2; ++v) {
      const float64x2_t scales = vreinterpretq_f64_f32(
          load_half(chunk.scales + group * kTileRows + half * 8 + v * kVectorRows));
      const F scale[2] = {vreinterpretq_f32_f64(vzip1q_f64(scales, scales)),
                          vreinterpretq_f32_f64(vzip2q_f64(scales, scales))};
      SATCHEL_UNROLL
      for (int r = 2 * v; r < 2 * v + 2; ++r) {
        SATCHEL_UNROLL
        for (int p = 0; p < P; ++p) {
          acc[p][r] = fma(vcvtq_f32_s32(dots[p][r]), scale[r % 2], acc[p][r]);
          dots[p][r] = vdupq_n_s32(0);
        }
      }
    }
  }
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) {
    SATCHEL_UNROLL
    for (int r = 0; r < kBlockPairs; ++r) {
      work.dots[pair + p][half * kBlockPairs + r] = dots[p][r];
      work.acc[pair + p][half * kBlockPairs + r] = acc[p][r];
    }
  }
}

// `rows` rows of activations, an even number, against one tile.
template <class Code>
void multiply_tile(const QuantizedRows& x, int64_t first, int64_t rows, const PackedMatrix& w,
                   const float* bias, int64_t tile, float* y, int64_t ldy, Workspace& work) {
  const int64_t pairs = rows / 2, tile_bytes = w.cols / Code::kColumns * 64;
  std::memset(work.dots, 0, static_cast<size_t>(pairs) * sizeof work.dots[0]);
  std::memset(work.acc, 0, static_cast<size_t>(pairs) * sizeof work.acc[0]);
  for (int64_t begin = 0; begin < w.cols; begin += kChunkColumns) {
    const int64_t end = begin + kChunkColumns < w.cols ? begin + kChunkColumns : w.cols;
    const Chunk chunk{begin, end, w.scales + tile * (w.cols / w.group) * kTileRows, w.group};
    Code::unpack(w.codes + tile * tile_bytes, begin, end - begin, work.weights);
    for (int half = 0; half < 2; ++half) {
      int64_t pair = 0;
      const auto activations = [&] { return x.codes + (first + 2 * pair) * x.stride; };
      for (; pair + 2 <= pairs; pair += 2) {
        multiply_chunk<2>(chunk, {activations(), x.stride}, pair, half, work);
      }
      if (pair < pairs) multiply_chunk<1>(chunk, {activations(), x.stride}, pair, half, work);
    }
  }
  for (int64_t pair = 0; pair < pairs; ++pair) {
    for (int v = 0; v < kQuarters; ++v) {
      const float64x2_t a = vreinterpretq_f64_f32(work.acc[pair][2 * v]);
      const float64x2_t b = vreinterpretq_f64_f32(work.acc[pair][2 * v + 1]);
      const F results[2] = {vreinterpretq_f32_f64(vzip1q_f64(a, b)),
                            vreinterpretq_f32_f64(vzip2q_f64(a, b))};
      for (int i = 0; i < 2; ++i) {
        const int64_t row = first + 2 * pair + i;
        write_vector(results[i], x.scales[row], w, bias, tile * kQuarters + v,
                     y + row * ldy);
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
  linear_pairs<Q4Pairs>(x, w, bias, tile_begin, tile_end, y, ldy);
}

void i8mm_linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                    int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  linear_pairs<Q8Pairs>(x, w, bias, tile_begin, tile_end, y, ldy);
}

}  // namespace satchel
