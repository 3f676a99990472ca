// Few rows of activations against weights whose groups have scales of 16 bits: codes are unpacked
// in registers while the rows meet them, and each group's sum is scaled by itself, in the order of
// columns, whichever rows and tiles are computed together. Included in avx512.cpp.

namespace satchel {
namespace {

// M rows of activations against T tiles at a distance. The sums start at minus the codes' offset
// times the sum of the activations, which leaves the product with the signed weights. Where a group
// has as many steps as kGroupSteps says, no loop is left in it, and all sums stay in registers.
template <class Code, int M, int T, int kGroupSteps = 0>
void block(const StepJob& job, int64_t first, int64_t tile, int64_t distance, CodesAhead& next) {
  const QuantizedRows& x = job.x;
  const PackedMatrix& w = job.w;
  const int64_t groups = w.cols / w.group,
                steps = kGroupSteps > 0 ? kGroupSteps : w.group / Code::kColumns;
  const int64_t tile_bytes = w.cols / Code::kColumns * Code::kStepBytes;
  const uint8_t* codes = w.codes + tile * tile_bytes;
  const int64_t stream = distance * tile_bytes;
  typename Code::template Scales<T> scales(w, tile, distance);
  const int8_t* activations = x.codes + first * x.stride;
  const int32_t* sums = x.sums + first * groups;
  const StreamsAhead ahead(x);
  F acc[T][M];
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) {
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) acc[t][m] = broadcast(0.0f);
  }
  for (int64_t g = 0; g < groups; ++g) {
    if constexpr (M == 1) {
      ahead.ask<T>(codes + g * steps * Code::kStepBytes, stream, steps * Code::kStepBytes);
    }
    if constexpr (M > 1) next.ask();
    __m512i dots[T][M];
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        dots[t][m] = _mm512_set1_epi32(-Code::kOffset * sums[m * groups + g]);
      }
    }
    const auto step = [&](int64_t s) {
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) {
        Code::template add<M>(codes + t * stream + s * Code::kStepBytes,
                              activations + s * Code::kColumns, x.stride, dots[t]);
      }
    };
    int64_t s = g * steps;
    const int64_t end = s + steps;
    if constexpr (kGroupSteps > 0) {
      SATCHEL_UNROLL
      for (int i = 0; i < kGroupSteps; ++i) step(s + i);
    } else {
      for (; s + 4 <= end; s += 4) {
        step(s);
        step(s + 1);
        step(s + 2);
        step(s + 3);
      }
      for (; s < end; ++s) step(s);
    }
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const F scale = scales.at(t);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        acc[t][m] = fma(_mm512_cvtepi32_ps(dots[t][m]), scale, acc[t][m]);
        acc[t][m] = with_minimum<Code>(scales, t, sums[m * groups + g], acc[t][m]);
      }
    }
    scales.next();
  }
  for (int t = 0; t < T; ++t) {
    const int64_t at = tile + t * distance, n = rows_in_tile(w, at);
    F offset;
    load_bias(job.bias, at, n, &offset);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      const F result = acc[t][m] * broadcast(x.scales[first + m]) + offset;
      store_tile(job.y + (first + m) * job.ldy + at * kTileRows, &result, n);
    }
  }
}

// One row against T tiles with groups of 32 columns, the usual case: nothing of a group is left to
// loops, and the two nibbles have sums of their own, which halves the wait for each other.
template <class Code, int T>
void one_row_of_groups_of_32(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                             int64_t tile, int64_t distance, float* y) {
  constexpr int kSteps = 4;  // of 8 columns
  const int64_t groups = w.cols / 32, stream = distance * w.cols * 8;
  const uint8_t* codes = w.codes + tile * w.cols * 8;
  HalfScales scales(w, tile, distance);
  const __m512i nibble = _mm512_set1_epi8(15);
  const StreamsAhead ahead(x);
  F acc[T];
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) acc[t] = broadcast(0.0f);
  for (int64_t g = 0; g < groups; ++g, codes += kSteps * 64) {
    ahead.ask<T>(codes, stream, kSteps * 64);
    const int8_t* activations = x.codes + g * 32;
    __m512i low[T], high[T];
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      low[t] = _mm512_set1_epi32(-Q4::kOffset * x.sums[g]);
      high[t] = _mm512_setzero_si512();
    }
    SATCHEL_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const __m512i first = broadcast4(activations + s * 8);
      const __m512i second = broadcast4(activations + s * 8 + 4);
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m512i bytes = load_bytes(codes + t * stream + s * 64);
        accumulate(low[t], _mm512_and_si512(bytes, nibble), first);
        accumulate(high[t], _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble), second);
      }
    }
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const F dots = _mm512_cvtepi32_ps(_mm512_add_epi32(low[t], high[t]));
      acc[t] = fma(dots, scales.at(t), acc[t]);
    }
    scales.next();
  }
  for (int t = 0; t < T; ++t) {
    const int64_t at = tile + t * distance, n = rows_in_tile(w, at);
    F offset;
    load_bias(bias, at, n, &offset);
    const F result = acc[t] * broadcast(x.scales[0]) + offset;
    store_tile(y + at * kTileRows, &result, n);
  }
}

template <class Code, int T>
void one_row(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile,
             int64_t distance, float* y) {
  if constexpr (Code::kMayHaveRuns) {
    if (w.group == 32) return one_row_of_groups_of_32<Code, T>(x, w, bias, tile, distance, y);
  }
  CodesAhead none;
  block<Code, 1, T>({x, w, bias, y, 0}, 0, tile, distance, none);
}

// A single row: streams of tiles that stay apart, so that each is long.
template <class Code>
void linear_row(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                int64_t tile_begin, int64_t tile_end, float* y) {
  const int64_t distance = (tile_end - tile_begin) / kTilesForOneRow;
  for (int64_t i = 0; i < distance; ++i) {
    one_row<Code, kTilesForOneRow>(x, w, bias, tile_begin + i, distance, y);
  }
  for (int64_t i = tile_begin + distance * kTilesForOneRow; i < tile_end; ++i) {
    one_row<Code, 1>(x, w, bias, i, 0, y);
  }
}

// M rows against a range of tiles, in streams that stay apart.
template <class Code, int M>
void group_tiles(const StepJob& job, int64_t row, int64_t tile_begin, int64_t tile_end,
                 CodesAhead ahead) {
  constexpr int T = M <= 2 ? kTilesForOneRow : kStepTiles;
  constexpr int kUsual = Code::kUsualGroup / Code::kColumns;  // steps of a group
  const bool usual = job.w.group == Code::kUsualGroup;
  const auto several = usual ? block<Code, M, T, kUsual> : block<Code, M, T>;
  const auto single = usual ? block<Code, M, 1, kUsual> : block<Code, M, 1>;
  const int64_t distance = (tile_end - tile_begin) / T;
  for (int64_t i = 0; i < distance; ++i) several(job, row, tile_begin + i, distance, ahead);
  for (int64_t i = tile_begin + distance * T; i < tile_end; ++i) single(job, row, i, 0, ahead);
}

template <class Code>
void linear_groups(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                   int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  constexpr StepTiles tiles_of[kMostStepRows] = {group_tiles<Code, 1>, group_tiles<Code, 2>,
                                                 group_tiles<Code, 3>, group_tiles<Code, 4>,
                                                 group_tiles<Code, 5>, group_tiles<Code, 6>};
  if (x.rows == 1) return linear_row<Code>(x, w, bias, tile_begin, tile_end, y);
  walk_strips({x, w, bias, y, ldy}, {x.rows, kMostStepRows, kMostStepRows},
              Code::kStepBytes / Code::kColumns, tile_begin, tile_end, tiles_of);
}

}  // namespace
}  // namespace satchel
