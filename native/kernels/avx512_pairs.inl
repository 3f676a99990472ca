// Activations of 16 bits against weights whose groups are scaled one by one. The products of a
// token's high and low digits become one whole number before a group is scaled, which halves what
// there is to do with floats, and every token is summed alike, alone and in any block. Included in
// avx512.cpp.

namespace satchel {
namespace {

constexpr int64_t kPairs = 3;  // tokens that share registers

// M tokens, the rows of codes from 2 * token on, against T tiles at a distance. Where a group has
// as many steps as kGroupSteps says, no loop is left in it.
template <class Code, int M, int T, int kGroupSteps>
void pair_block(const StepJob& job, int64_t token, int64_t tile, int64_t distance,
                CodesAhead& next) {
  constexpr int kRows = 2 * M;
  const QuantizedRows& x = job.x;
  const PackedMatrix& w = job.w;
  const int64_t groups = w.cols / w.group,
                steps = kGroupSteps > 0 ? kGroupSteps : w.group / Code::kColumns;
  const int64_t tile_bytes = w.cols / Code::kColumns * Code::kStepBytes,
                stream = distance * tile_bytes;
  const uint8_t* codes = w.codes + tile * tile_bytes;
  const int8_t* activations = x.codes + 2 * token * x.stride;
  const int32_t* sums = x.sums + 2 * token * groups;
  typename Code::template Scales<T> scales(w, tile, distance);
  const StreamsAhead streams(x);
  F acc[T][M];
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) {
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) acc[t][m] = broadcast(0.0f);
  }
  for (int64_t g = 0; g < groups; ++g) {
    if constexpr (M == 1) {
      streams.ask<T>(codes + g * steps * Code::kStepBytes, stream, steps * Code::kStepBytes);
    }
    if constexpr (M > 1) next.ask();
    __m512i dots[T][kRows];
    int32_t group_sums[M];
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      // Minus the codes' offset times the sum of the activations leaves signed weights.
      group_sums[m] = kDigitBase * sums[2 * m * groups + g] + sums[(2 * m + 1) * groups + g];
      const __m512i start = _mm512_set1_epi32(-Code::kOffset * group_sums[m]);
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) {
        dots[t][2 * m] = _mm512_setzero_si512();
        dots[t][2 * m + 1] = start;
      }
    }
    const auto step = [&](int64_t s) {
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) {
        Code::template add<kRows>(codes + t * stream + s * Code::kStepBytes,
                                  activations + s * Code::kColumns, x.stride, dots[t]);
      }
    };
    if constexpr (kGroupSteps > 0) {
      SATCHEL_UNROLL
      for (int i = 0; i < kGroupSteps; ++i) step(g * kGroupSteps + i);
    } else {
      for (int64_t s = g * steps; s < (g + 1) * steps; ++s) step(s);
    }
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const F scale = scales.at(t);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        static_assert(kDigitBase == 255);
        const __m512i high = dots[t][2 * m], low = dots[t][2 * m + 1];
        const __m512i both =
            _mm512_add_epi32(_mm512_slli_epi32(high, 8), _mm512_sub_epi32(low, high));
        acc[t][m] = fma(_mm512_cvtepi32_ps(both), scale, acc[t][m]);
        acc[t][m] = with_minimum<Code>(scales, t, group_sums[m], acc[t][m]);
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
      const F result = acc[t][m] * broadcast(x.scales[2 * (token + m) + 1]) + offset;
      store_tile(job.y + (token + m) * job.ldy + at * kTileRows, &result, n);
    }
  }
}

// M tokens against a range of tiles, in streams that stay apart.
template <class Code, int M>
void pair_tiles(const StepJob& job, int64_t token, int64_t tile_begin, int64_t tile_end,
                CodesAhead ahead) {
  constexpr int T = M == 1 ? kTilesForOneRow : kStepTiles;
  constexpr int kUsual = Code::kUsualGroup / Code::kColumns;
  const bool usual = job.w.group == Code::kUsualGroup;
  const auto several = usual ? pair_block<Code, M, T, kUsual> : pair_block<Code, M, T, 0>;
  const auto single = usual ? pair_block<Code, M, 1, kUsual> : pair_block<Code, M, 1, 0>;
  const int64_t distance = (tile_end - tile_begin) / T;
  for (int64_t i = 0; i < distance; ++i) several(job, token, tile_begin + i, distance, ahead);
  for (int64_t i = tile_begin + distance * T; i < tile_end; ++i) single(job, token, i, 0, ahead);
}

template <class Code>
void linear_pairs(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                  int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  constexpr StepTiles tiles_of[kPairs] = {pair_tiles<Code, 1>, pair_tiles<Code, 2>,
                                          pair_tiles<Code, 3>};
  const StepJob job{x, w, bias, y, ldy};
  const int64_t tokens = x.rows / 2;
  if (tokens == 1) return tiles_of[0](job, 0, tile_begin, tile_end, {});
  walk_strips(job, {tokens, kPairs, kPairs}, Code::kStepBytes / Code::kColumns, tile_begin,
              tile_end, tiles_of);
}

}  // namespace
}  // namespace satchel
