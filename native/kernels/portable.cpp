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
#include "packed_bits.h"

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

// `sums` are those of the group's activations, `groups` from one row's to the next's.
template <class Scales>
inline void scale_group(const Scales& scales, const S (*dots)[kQuarters], int rows,
                        const int32_t* sums, int64_t groups, F (*acc)[kQuarters]) {
  for (int v = 0; v < kQuarters; ++v) {
    const F scale = scales.at(0, v * 4);
    for (int m = 0; m < rows; ++m) {
      acc[m][v] = fma(__builtin_convertvector(dots[m][v], F), scale, acc[m][v]);
    }
    if constexpr (requires { scales.minimum(0); }) {
      const F minimum = scales.minimum(0, v * 4);
      for (int m = 0; m < rows; ++m) {
        acc[m][v] = fma(minimum, broadcast(-static_cast<float>(sums[m * groups])), acc[m][v]);
      }
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
template <class Scales, int kZero, int M>
void block_q4(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
              int64_t tile, float* y, int64_t ldy) {
  const int64_t groups = w.cols / w.group;
  const uint8_t* codes = w.codes + tile * w.cols * 8;
  Scales scales(w, tile);
  F acc[M][kQuarters] = {};
  for (int64_t g = 0; g < groups; ++g) {
    S dots[M][kQuarters];
    for (int m = 0; m < M; ++m) {
      const int32_t start = -kZero * x.sums[(first + m) * groups + g];
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
    scale_group(scales, dots, M, x.sums + first * groups + g, groups, acc);
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
    scale_group(scales, dots, M, x.sums + first * groups + g, groups, acc);
    scales.next();
  }
  write_rows(x, first, M, w, bias, tile, acc, y, ldy);
}

// Codes of 5 and 6 bits: the fours of columns whose products 16 bits hold are added up before sums
// are widened.
template <class Layout, class Scales, int kZero, int M>
void block_packed(const QuantizedRows& x, int64_t first, const PackedMatrix& w, const float* bias,
                  int64_t tile, float* y, int64_t ldy) {
  constexpr int kFoursTogether = Layout::kProductsIn16Bits / 2;
  const int64_t groups = w.cols / w.group;
  const uint8_t* codes = w.codes + tile * w.cols * Layout::kColumnBytes;
  Scales scales(w, tile);
  F acc[M][kQuarters] = {};
  for (int64_t g = 0; g < groups; ++g) {
    S dots[M][kQuarters];
    for (int m = 0; m < M; ++m) {
      const int32_t start = -kZero * x.sums[(first + m) * groups + g];
      for (int v = 0; v < kQuarters; ++v) dots[m][v] = S{start, start, start, start};
    }
    for (int64_t c = g * w.group; c < (g + 1) * w.group; c += Layout::kColumns) {
      const uint8_t* step = codes + c * Layout::kColumnBytes;
      for (int from = 0; from < Layout::kFours; from += kFoursTogether) {
        Shorts sums[M][kQuarters] = {};
        for (int i = from; i < from + kFoursTogether; ++i) {
          uint8_t bytes[64];
          for (int64_t at = 0; at < 64; ++at)
            bytes[at] = static_cast<uint8_t>(Layout::code(step, i, at));
          Shorts pairs[M][2];
          for (int m = 0; m < M; ++m) {
            const int8_t* p = x.codes + (first + m) * x.stride + c + 4 * i;
            pairs[m][0] = pair_of(p, 0);
            pairs[m][1] = pair_of(p, 1);
          }
          for (int v = 0; v < kQuarters; ++v) {
            const Words word = load_words(bytes + v * 16);
            const Shorts even = (Shorts)(word & 255), odd = (Shorts)(word >> 8);
            for (int m = 0; m < M; ++m) sums[m][v] += even * pairs[m][0] + odd * pairs[m][1];
          }
        }
        for (int m = 0; m < M; ++m) {
          for (int v = 0; v < kQuarters; ++v) dots[m][v] += add_pairs(sums[m][v]);
        }
      }
    }
    scale_group(scales, dots, M, x.sums + first * groups + g, groups, acc);
    scales.next();
  }
  write_rows(x, first, M, w, bias, tile, acc, y, ldy);
}

// All rows against a range of tiles, as many at once as kRowsAtOnce.
using Block = void (*)(const QuantizedRows& x, int64_t first, const PackedMatrix& w,
                       const float* bias, int64_t tile, float* y, int64_t ldy);
template <Block kSeveral, Block kOne>
void multiply(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t ldy) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    int64_t i = 0;
    for (; i + kRowsAtOnce <= x.rows; i += kRowsAtOnce) kSeveral(x, i, w, bias, tile, y, ldy);
    for (; i < x.rows; ++i) kOne(x, i, w, bias, tile, y, ldy);
  }
}
template <class Scales, int kZero = 8>
constexpr auto multiply_q4 =
    multiply<block_q4<Scales, kZero, kRowsAtOnce>, block_q4<Scales, kZero, 1>>;
template <class Layout, class Scales, int kZero>
constexpr auto multiply_packed = multiply<block_packed<Layout, Scales, kZero, kRowsAtOnce>,
                                          block_packed<Layout, Scales, kZero, 1>>;

void linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  const auto linear =
      w.encoding == MatrixEncoding::q4_steps ? multiply_q4<StepScales> : multiply_q4<HalfScales>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

void linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  multiply<block_q8<kRowsAtOnce>, block_q8<1>>(x, w, bias, tile_begin, tile_end, y, ldy);
}

void linear_k(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t ldy) {
  const auto linear =
      w.encoding == MatrixEncoding::q4_k   ? multiply_q4<SixBitScales<1>, 0>
      : w.encoding == MatrixEncoding::q5_k ? multiply_packed<Bits5, SixBitScales<1>, 0>
      : w.encoding == MatrixEncoding::q6_k ? multiply_packed<Bits6, ByteScales<1>, 32>
                                           : multiply_packed<Bits5, HalfScales, 16>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

// What the code of a matrix means at column c of a tile's row, before it is scaled.
inline int code_of(const PackedMatrix& w, int64_t tile, int64_t lane, int64_t c) {
  const uint8_t* codes = w.codes + tile * w.cols * column_bytes(w.encoding);
  const int64_t at = lane * 4 + c % 4;
  const auto packed = [&]<class Layout>(Layout) {
    return Layout::code(codes + c / Layout::kColumns * Layout::kStepBytes,
                        static_cast<int>(c % Layout::kColumns / 4), at);
  };
  switch (w.encoding) {
    case MatrixEncoding::q8:
      return codes[c / 4 * 64 + at] - 128;
    case MatrixEncoding::q6_k:
      return packed(Bits6{}) - 32;
    case MatrixEncoding::q5:
      return packed(Bits5{}) - 16;
    case MatrixEncoding::q5_min:
    case MatrixEncoding::q5_k:
      return packed(Bits5{});
    default: {
      const bool from_zero =
          w.encoding == MatrixEncoding::q4_min || w.encoding == MatrixEncoding::q4_k;
      return (codes[c / 8 * 64 + at] >> c / 4 % 2 * 4 & 15) - (from_zero ? 0 : 8);
    }
  }
}

template <class Scales>
void unpack_groups(const PackedMatrix& w, int64_t row, float* out) {
  const int64_t tile = row / kTileRows, lane = row % kTileRows, four = lane / kLanes * kLanes;
  Scales scales(w, tile);
  for (int64_t begin = 0; begin < w.cols; begin += w.group, scales.next()) {
    const float scale = scales.at(0, four)[lane - four];
    for (int64_t c = begin; c < begin + w.group; ++c) {
      out[c] = static_cast<float>(code_of(w, tile, lane, c)) * scale;
    }
    if constexpr (requires { scales.minimum(0); }) {
      const float minimum = scales.minimum(0, four)[lane - four];
      for (int64_t c = begin; c < begin + w.group; ++c) out[c] -= minimum;
    }
  }
}

}  // namespace
}  // namespace satchel

#include "table.inl"

namespace satchel {

void unpack_row(const PackedMatrix& w, int64_t row, float* out) {
  if (w.encoding == MatrixEncoding::q4_steps) return unpack_groups<StepScales>(w, row, out);
  if (w.encoding == MatrixEncoding::q6_k) return unpack_groups<ByteScales<1>>(w, row, out);
  if (has_superblocks(w.encoding)) return unpack_groups<SixBitScales<1>>(w, row, out);
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
