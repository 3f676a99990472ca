// K-quants against few rows of activations. The products of a super-block add up to a whole number:
// each group's sum times its multiple. 32 bits hold it exactly, in whatever order it is made, and
// it is scaled once. So a token has the same bits alone and beside others. Included in avx512.cpp.

namespace satchel {
namespace {

constexpr int64_t kSuperblockTokens =
    3;  // that share registers, with 16 bits; twice as many with 8

inline __m512i load_multiples(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// M tokens of D digits, from row D * token of the codes on, against T tiles at a distance.
template <class Code, int D, int M, int T>
void superblock_block(const StepJob& job, int64_t token, int64_t tile, int64_t distance,
                      CodesAhead& next) {
  constexpr int kRows = D * M, kGroup = Code::kUsualGroup, kGroups = kSuperblock / kGroup;
  constexpr int kSteps = kGroup / Code::kColumns;
  const QuantizedRows& x = job.x;
  const PackedMatrix& w = job.w;
  const int64_t groups = w.cols / kGroup, tile_bytes = w.cols * Code::kStepBytes / Code::kColumns;
  const uint8_t* codes = w.codes + tile * tile_bytes;
  const int64_t stream = distance * tile_bytes;
  const int8_t* activations = x.codes + D * token * x.stride;
  const int32_t* sums = x.sums + D * token * groups;
  typename Code::template Scales<T> scales(w, tile, distance);
  const StreamsAhead streams(x);
  F acc[T][kRows];
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < kRows; ++r) acc[t][r] = broadcast(0.0f);
  }
  for (int64_t block = 0; block < groups; block += kGroups) {
    __m512i totals[T][kRows], least[T][M];
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      SATCHEL_UNROLL
      for (int r = 0; r < kRows; ++r) totals[t][r] = _mm512_setzero_si512();
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) least[t][m] = _mm512_setzero_si512();
    }
    for (int64_t g = block; g < block + kGroups; ++g) {
      if constexpr (M == 1) {
        streams.ask<T>(codes, stream, kSteps * Code::kStepBytes);
      } else {
        next.ask();
      }
      __m512i dots[T][kRows];
      SATCHEL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        // Minus the codes' offset times the sum of the activations leaves signed weights.
        const __m512i start = Code::kOffset == 0
                                  ? _mm512_setzero_si512()
                                  : _mm512_set1_epi32(-Code::kOffset * sums[r * groups + g]);
        SATCHEL_UNROLL
        for (int t = 0; t < T; ++t) dots[t][r] = start;
      }
      SATCHEL_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        SATCHEL_UNROLL
        for (int t = 0; t < T; ++t) {
          Code::template add<kRows>(codes + t * stream + s * Code::kStepBytes,
                                    activations + s * Code::kColumns, x.stride, dots[t]);
        }
      }
      codes += kSteps * Code::kStepBytes, activations += kGroup;
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m512i multiples = load_multiples(scales.multiples(t));
        SATCHEL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          totals[t][r] = _mm512_add_epi32(totals[t][r], _mm512_mullo_epi32(dots[t][r], multiples));
        }
      }
      if constexpr (Code::kHasMinima) {
        SATCHEL_UNROLL
        for (int m = 0; m < M; ++m) {
          const int32_t* own = sums + D * m * groups + g;
          const __m512i sum =
              _mm512_set1_epi32(D == 2 ? kDigitBase * own[0] + own[groups] : own[0]);
          SATCHEL_UNROLL
          for (int t = 0; t < T; ++t) {
            const __m512i minima = load_multiples(scales.minima(t));
            least[t][m] = _mm512_add_epi32(least[t][m], _mm512_mullo_epi32(sum, minima));
          }
        }
      }
      if (g + 1 == block + kGroups) {
        for (int t = 0; t < T; ++t) {
          const F step = scales.step(t);
          for (int r = 0; r < kRows; ++r) {
            acc[t][r] = fma(_mm512_cvtepi32_ps(totals[t][r]), step, acc[t][r]);
          }
          if constexpr (Code::kHasMinima) {
            const F minimum = scales.minimum_step(t);
            for (int m = 0; m < M; ++m) {
              F& low = acc[t][D * m + D - 1];
              low = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(least[t][m]), minimum, low);
            }
          }
        }
      }
      scales.next();
    }
  }
  for (int t = 0; t < T; ++t) {
    const int64_t at = tile + t * distance, n = rows_in_tile(w, at);
    F offset;
    load_bias(job.bias, at, n, &offset);
    for (int m = 0; m < M; ++m) {
      const float* own = x.scales + D * (token + m);
      F result = acc[t][D * m] * broadcast(own[0]);
      if constexpr (D == 2) result = fma(acc[t][D * m + 1], broadcast(own[1]), result);
      result = result + offset;
      store_tile(job.y + (token + m) * job.ldy + at * kTileRows, &result, n);
    }
  }
}

// M tokens against a range of tiles, in streams that stay apart.
template <class Code, int D, int M>
void superblock_tiles(const StepJob& job, int64_t token, int64_t tile_begin, int64_t tile_end,
                      CodesAhead ahead) {
  constexpr int T = D * M <= 2 ? kTilesForOneRow : kStepTiles;
  const int64_t distance = (tile_end - tile_begin) / T;
  for (int64_t i = 0; i < distance; ++i) {
    superblock_block<Code, D, M, T>(job, token, tile_begin + i, distance, ahead);
  }
  for (int64_t i = tile_begin + distance * T; i < tile_end; ++i) {
    superblock_block<Code, D, M, 1>(job, token, i, 0, ahead);
  }
}

template <class Code, int D>
void linear_superblocks(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                        int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  constexpr StepTiles tiles_of[kSuperblockTokens] = {
      superblock_tiles<Code, D, 1>, superblock_tiles<Code, D, 2>, superblock_tiles<Code, D, 3>};
  const StepJob job{x, w, bias, y, ldy};
  const int64_t tokens = x.rows / D;
  if (tokens == 1) return tiles_of[0](job, 0, tile_begin, tile_end, {});
  walk_strips(job, {tokens, kSuperblockTokens, kSuperblockTokens},
              Code::kStepBytes / Code::kColumns, tile_begin, tile_end, tiles_of);
}

}  // namespace
}  // namespace satchel
