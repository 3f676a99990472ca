// Many rows of activations against quantised weights: the bytes of a few tiles stay in the
// second-level cache while all rows pass over them. Every output is summed in the order of a single
// row, so that both give the same floats. Included in avx512.cpp.

#include "next_codes.h"

namespace satchel {
namespace {

constexpr int kRowsTogether = 4;
constexpr int kTilesTogether = 3;  // 12 sums hide the latency of a multiplication
constexpr int64_t kColumnsTogether = 2048;
constexpr int64_t kMostRows = 256;  // that pass over the weights of one unpacking

// A chunk of whole groups of the matrix, as bytes [cols/4][16][4] of each tile.
struct Chunk {
  int64_t first_group, groups;
  const uint8_t* bytes[kTilesTogether];
};

struct alignas(64) Workspace {
  uint8_t bytes[kTilesTogether][kColumnsTogether * kTileRows];
  // The results so far, side by side: in y, rows are often so far apart that they share the same
  // few places of the caches.
  float results[kMostRows][kTilesTogether][kTileRows];
};

template <class Code, int M, int T>
__attribute__((noinline)) void chunk_rows(const QuantizedRows& x, int64_t row,
                                          const PackedMatrix& w, const float* bias, int64_t tile,
                                          const Chunk& chunk,
                                          float (*results)[kTilesTogether][kTileRows], float* y,
                                          int64_t ldy) {
  const int64_t groups = w.cols / w.group;
  typename Code::template Scales<T> scales(w, tile, 1, chunk.first_group);
  const int8_t* activations = x.codes + row * x.stride + chunk.first_group * w.group;

  // The sums start at minus the codes' offset times the sum of the activations, which leaves the
  // product with the signed weights.
  alignas(64) int32_t starts[M][kColumnsTogether / Code::kSmallestGroup];
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) {
    const int32_t* sums = x.sums + (row + m) * groups + chunk.first_group;
    for (int64_t g = 0; g < chunk.groups; ++g) starts[m][g] = -Code::kOffset * sums[g];
  }
  F acc[T][M];
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) {
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      acc[t][m] = chunk.first_group > 0 ? load(results[m][t]) : broadcast(0.0f);
    }
  }
  const int64_t stride = x.stride, group = w.group;
  const uint8_t* bytes = chunk.bytes[0];
  const int64_t second = T > 1 ? chunk.bytes[1] - bytes : 0;  // tiles are at equal distances
  for (int64_t g = 0; g < chunk.groups; ++g) {
    __m512i dots[T][M];
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) dots[t][m] = _mm512_set1_epi32(starts[m][g]);
    }
    for (const int8_t* end = activations + group; activations < end;
         activations += 4, bytes += 64) {
      __m512i weights[T];
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) weights[t] = load_bytes(bytes + t * second);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        const __m512i four = broadcast4(activations + m * stride);
        SATCHEL_UNROLL
        for (int t = 0; t < T; ++t) accumulate(dots[t][m], weights[t], four);
      }
    }
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const F scale = scales.at(t);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        acc[t][m] = fma(_mm512_cvtepi32_ps(dots[t][m]), scale, acc[t][m]);
        const int32_t* sums = x.sums + (row + m) * groups + chunk.first_group;
        acc[t][m] = with_minimum<Code>(scales, t, sums[g], acc[t][m]);
      }
    }
    scales.next();
  }
  if (chunk.first_group + chunk.groups < groups) {
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) store(results[m][t], acc[t][m]);
    }
    return;
  }
  for (int t = 0; t < T; ++t) {
    const int64_t n = rows_in_tile(w, tile + t);
    F offset;
    load_bias(bias, tile + t, n, &offset);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      const F result = acc[t][m] * broadcast(x.scales[row + m]) + offset;
      store_tile(y + (row + m) * ldy + (tile + t) * kTileRows, &result, n);
    }
  }
}

// `rows` rows from row `first` against T tiles.
template <class Code, int T>
void tiles_for_rows(const QuantizedRows& x, int64_t first, int64_t rows, const PackedMatrix& w,
                    const float* bias, int64_t tile, Workspace& work, float* y, int64_t ldy) {
  const int64_t groups = w.cols / w.group, chunk_groups = kColumnsTogether / w.group;
  Chunk chunk;
  for (int64_t g = 0; g < groups; g += chunk_groups) {
    chunk.first_group = g;
    chunk.groups = groups - g < chunk_groups ? groups - g : chunk_groups;
    for (int t = 0; t < T; ++t) {
      chunk.bytes[t] =
          Code::bytes_of(w, tile + t, g * w.group, chunk.groups * w.group, work.bytes[t]);
    }
    NextCodes next =
        NextCodes::after(w, tile, T, g * w.group, chunk.groups * w.group, rows / kRowsTogether + 1);
    int64_t r = 0;
    for (; r + kRowsTogether <= rows; r += kRowsTogether) {
      next.ask();
      chunk_rows<Code, kRowsTogether, T>(x, first + r, w, bias, tile, chunk, work.results + r, y,
                                         ldy);
    }
    for (; r < rows; ++r) {
      chunk_rows<Code, 1, T>(x, first + r, w, bias, tile, chunk, work.results + r, y, ldy);
    }
  }
}

template <class Code>
void linear_rows(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                 int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  Workspace work;
  for (int64_t first = 0; first < x.rows; first += kMostRows) {
    const int64_t rows = x.rows - first < kMostRows ? x.rows - first : kMostRows;
    int64_t tile = tile_begin;
    for (; tile + kTilesTogether <= tile_end; tile += kTilesTogether) {
      tiles_for_rows<Code, kTilesTogether>(x, first, rows, w, bias, tile, work, y, ldy);
    }
    for (; tile < tile_end; ++tile) {
      tiles_for_rows<Code, 1>(x, first, rows, w, bias, tile, work, y, ldy);
    }
  }
}

}  // namespace
}  // namespace satchel
