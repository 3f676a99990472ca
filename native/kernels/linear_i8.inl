// Linear layers of unsigned codes and signed 8-bit weights, for any lane width.
// Sums are exact, so that blocking and instruction sets make no difference.
// Included after integer_finish.inl and a dots_*.h.

namespace satchel {
namespace {

template <int M, int T>
inline void integer_block(const uint8_t* x, int64_t ldx, const IntegerMatrix& w,
                          const IntegerResult& result, int64_t row, int64_t tile, int32_t* sums) {
  Dots dots[M][T][kTileVectors];
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) {
    SATCHEL_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      const Dots first = dots_from(first_sums(result, w, (tile + t) * kTileRows + v * kLanes));
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) dots[m][t][v] = first;
    }
  }
  // Three rows share a base, so that the addresses of all rows fit in registers.
  constexpr int kBases = (M + 2) / 3;
  const uint8_t* bases[kBases];
  for (int i = 0; i < kBases; ++i) bases[i] = x + (row + 3 * i) * ldx;
  const int64_t tile_stride = w.steps * 4 * kTileRows;
  const int8_t* weights = w.codes + tile * tile_stride;
  for (int64_t s = 0; s < w.steps; ++s) {
    WeightStep step[T][kTileVectors];
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      SATCHEL_UNROLL
      for (int v = 0; v < kTileVectors; ++v) {
        step[t][v] = load_weights(weights + t * tile_stride + v * 4 * kLanes);
      }
    }
    weights += 4 * kTileRows;
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      const CodeStep codes = broadcast_codes(bases[m / 3] + m % 3 * ldx);
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) {
        SATCHEL_UNROLL
        for (int v = 0; v < kTileVectors; ++v) {
          dots[m][t][v] = add_products(dots[m][t][v], codes, step[t][v]);
        }
      }
    }
    SATCHEL_UNROLL
    for (int i = 0; i < kBases; ++i) bases[i] += 4;
  }
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) {
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      SATCHEL_UNROLL
      for (int v = 0; v < kTileVectors; ++v) {
        const I total = sums_of(dots[m][t][v]);
        std::memcpy(sums + (m * T + t) * kTileRows + v * kLanes, &total, sizeof total);
      }
    }
  }
}

// A block of as many rows as m says, up to M.
template <int M, int T>
inline void integer_rows(int64_t m, const uint8_t* x, int64_t ldx, const IntegerMatrix& w,
                         const IntegerResult& result, int64_t row, int64_t tile, int32_t* sums) {
  if constexpr (M > 1) {
    if (m < M) return integer_rows<M - 1, T>(m, x, ldx, w, result, row, tile, sums);
  }
  integer_block<M, T>(x, ldx, w, result, row, tile, sums);
}

constexpr int64_t kBlocksTogether = 4;  // whose sums are finished together, from the first-level cache

// All rows against T tiles.
template <int T>
inline void integer_tiles(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                          const IntegerResult& result, int64_t tile) {
  alignas(64) int32_t sums[kBlocksTogether * kIntegerRows * T * kTileRows];
  // Blocks of rows as equal as can be.
  const int64_t blocks = (m + kIntegerRows - 1) / kIntegerRows;
  for (int64_t block = 0, first = 0; block < blocks; ++block) {
    const int64_t row = block * m / blocks, end = (block + 1) * m / blocks;
    integer_rows<kIntegerRows, T>(end - row, x, ldx, w, result, row, tile, sums + (row - first) * T * kTileRows);
    if ((block + 1) % kBlocksTogether != 0 && block + 1 < blocks) continue;
    finish_rows<T, false>(result, w, tile, first, end - first, {sums, T * kTileRows, kTileRows});
    first = end;
  }
}

void linear_i8(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
               const IntegerResult& result, int64_t tile_begin, int64_t tile_end) {
  // The tiles stay in the cache while all rows pass over them.
  int64_t tile = tile_begin;
  for (; tile + kIntegerTiles <= tile_end; tile += kIntegerTiles) {
    integer_tiles<kIntegerTiles>(x, ldx, m, w, result, tile);
  }
  for (; tile < tile_end; ++tile) integer_tiles<1>(x, ldx, m, w, result, tile);
}

}  // namespace
}  // namespace satchel
