// The table that runs anywhere: plain C++ at the compiler's baseline.

#include "lanes_portable.h"

#include "elementwise.inl"
#include "quantize.inl"
#include "activate.inl"
#include "softmax.inl"
#include "linear_float.inl"
#include "integer_finish.inl"
#include "codes.inl"
#include "dots_portable.h"
#include "linear_i8.inl"
#include "depthwise.inl"
#include "depthwise_i8.inl"
#include "attention.inl"
#include "scales.inl"

namespace satchel {
namespace {

// Eight 16-bit lanes: lane 2r + h of vector v holds columns 2h and 2h + 1 (as bytes) of row
// 4v + r, because a tile stores four columns of each row side by side.
typedef uint16_t Words __attribute__((vector_size(16)));
typedef int16_t Shorts __attribute__((vector_size(16)));

constexpr int kRowsAtOnce = 4;
constexpr int kQuarters = 4;  // vectors of four rows in a tile

inline Words load_words(const uint8_t* p) {
  Words v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Two activations in every pair of lanes, to meet the columns c and c + 2 of each row.
inline Shorts pair_of(const int8_t* x, int c) {
  const int16_t a = x[c], b = x[c + 2];
  return Shorts{a, b, a, b, a, b, a, b};
}

// The two halves of each row added up: int16 pairs to int32.
inline S add_pairs(Shorts v) { return ((S)v << 16 >> 16) + ((S)v >> 16); }

template <class Scales>
inline void scale_group(const Scales& scales, const S (*dots)[kQuarters], int rows,
                        F (*acc)[kQuarters]) {
  for (int v = 0; v < kQuarters; ++v) {
    const F scale = scales.at(0, v * 4);
    for (int m = 0; m < rows; ++m) {
      acc[m][v] = fma(__builtin_convertvector(dots[m][v], F), scale, acc[m][v]);
    }
  }
}

inline void write_rows(const QuantizedRows& x, int64_t first, int rows, const PackedMatrix& w,
                       const float* bias, int64_t tile, F (*acc)[kQuarters], float* y,
                       int64_t ldy) {
  const int64_t n = rows_in_tile(w, tile);
  F offset[kQuarters];
  load_bias(bias, tile, n, offset);
  for (int m = 0; m < rows; ++m) {
    const F scale = broadcast(x.scales[first + m]);
    for (int v = 0; v < kQuarters; ++v) acc[m][v] = acc[m][v] * scale + offset[v];
    store_tile(y + (first + m) * ldy + tile * kTileRows, acc[m], n);
  }
}

// A lane takes four products of at most 15 * 127 per step of 8 columns; four steps fit in 16 bits,
// so sums are widened every 32 columns.
template <class Scales, int M>
void block_q4(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
              int64_t tile, float* y, int64_t ldy) {
  const int64_t groups = w.cols / w.group;
  const uint8_t* codes = w.codes + tile * w.cols * 8;
  Scales scales(w, tile);
  F acc[M][kQuarters] = {};
  for (int64_t g = 0; g < groups; ++g) {
    S dots[M][kQuarters];
    for (int m = 0; m < M; ++m) {
      const int32_t start = -8 * x.sums[(first + m) * groups + g];
      for (int v = 0; v < kQuarters; ++v) dots[m][v] = S{start, start, start, start};
    }
    for (int64_t c = g * w.group; c < (g + 1) * w.group; c += 32) {
      const int64_t left = (g + 1) * w.group - c;
      const int steps = static_cast<int>(left < 32 ? left / 8 : 4);
      Shorts pairs[4][M][4];
      for (int s = 0; s < steps; ++s) {
        for (int m = 0; m < M; ++m) {
          const int8_t* p = x.codes + (first + m) * x.stride + c + s * 8;
          pairs[s][m][0] = pair_of(p, 0);
          pairs[s][m][1] = pair_of(p, 1);
          pairs[s][m][2] = pair_of(p, 4);
          pairs[s][m][3] = pair_of(p, 5);
        }
      }
      for (int v = 0; v < kQuarters; ++v) {
        Shorts sums[M] = {};
        for (int s = 0; s < steps; ++s) {
          const Words word = load_words(codes + (c / 8 + s) * 64 + v * 16);
          const Shorts low0 = (Shorts)(word & 15), high0 = (Shorts)((word >> 4) & 15);
          const Shorts low1 = (Shorts)((word >> 8) & 15), high1 = (Shorts)(word >> 12);
          for (int m = 0; m < M; ++m) {
            sums[m] += low0 * pairs[s][m][0] + low1 * pairs[s][m][1] + high0 * pairs[s][m][2] +
                       high1 * pairs[s][m][3];
          }
        }
        for (int m = 0; m < M; ++m) dots[m][v] += add_pairs(sums[m]);
      }
    }
    scale_group(scales, dots, M, acc);
    scales.next();
  }
  write_rows(x, first, M, w, bias, tile, acc, y, ldy);
}

// One product of signed bytes fits in 16 bits and two may not, so each is widened.
template <int M>
void block_q8(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
              int64_t tile, float* y, int64_t ldy) {
  const int64_t groups = w.cols / w.group;
  const uint8_t* codes = w.codes + tile * w.cols * kTileRows;
  HalfScales scales(w, tile);
  F acc[M][kQuarters] = {};
  for (int64_t g = 0; g < groups; ++g) {
    S dots[M][kQuarters] = {};
    for (int64_t c = g * w.group; c < (g + 1) * w.group; c += 4) {
      Shorts pairs[M][2];
      for (int m = 0; m < M; ++m) {
        const int8_t* p = x.codes + (first + m) * x.stride + c;
        pairs[m][0] = pair_of(p, 0);
        pairs[m][1] = pair_of(p, 1);
      }
      for (int v = 0; v < kQuarters; ++v) {
        const Words word = load_words(codes + c * kTileRows + v * 16) ^ 0x8080;  // to signed
        const Shorts even = (Shorts)(word << 8) >> 8, odd = (Shorts)word >> 8;
        for (int m = 0; m < M; ++m) {
          dots[m][v] += add_pairs(even * pairs[m][0]) + add_pairs(odd * pairs[m][1]);
        }
      }
    }
    scale_group(scales, dots, M, acc);
    scales.next();
  }
  write_rows(x, first, M, w, bias, tile, acc, y, ldy);
}

template <class Scales>
void multiply_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                 int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    int64_t i = 0;
    for (; i + kRowsAtOnce <= x.rows; i += kRowsAtOnce) {
      block_q4<Scales, kRowsAtOnce>(x, i, w, bias, tile, y, ldy);
    }
    for (; i < x.rows; ++i) block_q4<Scales, 1>(x, i, w, bias, tile, y, ldy);
  }
}

void linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  const auto linear =
      w.encoding == MatrixEncoding::q4_steps ? multiply_q4<StepScales> : multiply_q4<HalfScales>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

void linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    int64_t i = 0;
    for (; i + kRowsAtOnce <= x.rows; i += kRowsAtOnce) {
      block_q8<kRowsAtOnce>(x, i, w, bias, tile, y, ldy);
    }
    for (; i < x.rows; ++i) block_q8<1>(x, i, w, bias, tile, y, ldy);
  }
}

template <class Scales>
void unpack_groups(const PackedMatrix& w, int64_t row, float* out) {
  const int64_t tile = row / kTileRows, lane = row % kTileRows, four = lane / kLanes * kLanes;
  Scales scales(w, tile);
  for (int64_t begin = 0; begin < w.cols; begin += w.group, scales.next()) {
    const float scale = scales.at(0, four)[lane - four];
    const int64_t end = begin + w.group;
    if (w.encoding != MatrixEncoding::q8) {
      const int zero = w.encoding == MatrixEncoding::q4_min ? 0 : 8;
      for (int64_t c = begin; c < end; c += 8) {
        const uint8_t* bytes = w.codes + (tile * w.cols / 8 + c / 8) * 64 + lane * 4;
        for (int j = 0; j < 4; ++j) {
          out[c + j] = static_cast<float>((bytes[j] & 15) - zero) * scale;
          out[c + 4 + j] = static_cast<float>((bytes[j] >> 4) - zero) * scale;
        }
      }
    } else {
      for (int64_t c = begin; c < end; c += 4) {
        const uint8_t* bytes = w.codes + (tile * w.cols / 4 + c / 4) * 64 + lane * 4;
        for (int j = 0; j < 4; ++j) out[c + j] = static_cast<float>(bytes[j] - 128) * scale;
      }
    }
  }
}

}  // namespace
}  // namespace satchel

#include "table.inl"

namespace satchel {

void unpack_row(const PackedMatrix& w, int64_t row, float* out) {
  if (w.encoding == MatrixEncoding::q4_steps) return unpack_groups<StepScales>(w, row, out);
  if (w.encoding != MatrixEncoding::f32 && w.encoding != MatrixEncoding::f16) {
    return unpack_groups<HalfScales>(w, row, out);
  }
  const int64_t tile = row / kTileRows, lane = row % kTileRows;
  const float* floats = reinterpret_cast<const float*>(w.codes);
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(w.codes);
  for (int64_t c = 0; c < w.cols; ++c) {
    const int64_t at = (tile * w.cols + c) * kTileRows + lane;
    out[c] = w.encoding == MatrixEncoding::f32 ? floats[at] : half_bits_to_float(halves[at]);
  }
}

constinit const KernelTable portable_table = make_table("portable");

}  // namespace satchel
