// Many rows of activations against weights of 4 bits whose scales have steps: single bytes, scaled
// once for each run of columns. All registers are for sums and what they are made of. Included in
// avx512.cpp.

#include "step_bytes.inl"

namespace satchel {
namespace {

constexpr int kRunRows = 6;
constexpr int kRunTiles = 4;
constexpr int32_t kByteOffset = 128;  // vpdpbusd takes unsigned weights

// Tiles and rows that pass over them together, and the current run of columns.
struct Run {
  const QuantizedRows& x;
  const PackedMatrix& w;
  const float* bias;
  float* y;
  int64_t ldy;
  int64_t tile;
  int64_t first_row, rows;
  int64_t first = 0, columns = 0;

  bool is_last() const { return first + columns == w.cols; }
};

struct alignas(64) RunWorkspace {
  uint8_t bytes[kRunTiles][kRunColumns * kTileRows];
  float steps[kRunTiles][kTileRows];
  int32_t starts[kMostRows];  // minus the bytes' offset times the sum of a row's activations
  // The results so far, side by side: see avx512_rows.inl.
  float results[kMostRows][kRunTiles][kTileRows];
};

template <int T>
void unpack_run(const Run& run, RunWorkspace& work) {
  for (int t = 0; t < T; ++t) {
    const TileRun tile(run.w, run.tile + t, run.first);
    store(work.steps[t], tile.steps());
    tile.bytes(work.steps[t], kByteOffset, 0, tile.columns(), work.bytes[t]);
  }
  const int64_t groups = run.w.cols / run.w.group, run_groups = run.columns / run.w.group;
  for (int64_t r = 0; r < run.rows; ++r) {
    const int32_t* sums = run.x.sums + (run.first_row + r) * groups + run.first / run.w.group;
    int32_t sum = 0;
    for (int64_t g = 0; g < run_groups; ++g) sum += sums[g];
    work.starts[r] = -kByteOffset * sum;
  }
}

template <int M, int T>
__attribute__((noinline)) void run_rows(const Run& run, int64_t row, RunWorkspace& work) {
  const int64_t stride = run.x.stride;
  const int8_t* activations = run.x.codes + (run.first_row + row) * stride + run.first;
  const uint8_t* bytes = work.bytes[0];
  __m512i dots[T][M];
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) {
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) dots[t][m] = _mm512_set1_epi32(work.starts[row + m]);
  }
  for (const int8_t* end = activations + run.columns; activations < end;
       activations += 4, bytes += 64) {
    __m512i weights[T];
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) weights[t] = load_bytes(bytes + t * (kRunColumns * kTileRows));
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      const __m512i four = broadcast4(activations + m * stride);
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) accumulate(dots[t][m], weights[t], four);
    }
  }
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) {
    const F step = load(work.steps[t]);
    const int64_t tile = run.tile + t, n = rows_in_tile(run.w, tile);
    F offset;
    load_bias(run.bias, tile, n, &offset);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      float* kept = work.results[row + m][t];
      const F sum =
          fma(_mm512_cvtepi32_ps(dots[t][m]), step, run.first > 0 ? load(kept) : broadcast(0.0f));
      if (!run.is_last()) {
        store(kept, sum);
        continue;
      }
      const int64_t at = run.first_row + row + m;
      const F result = sum * broadcast(run.x.scales[at]) + offset;
      store_tile(run.y + at * run.ldy + tile * kTileRows, &result, n);
    }
  }
}

template <int T>
void run_tiles(Run run, RunWorkspace& work) {
  for (; run.first < run.w.cols; run.first += run.columns) {
    const int64_t left = run.w.cols - run.first;
    run.columns = left < kRunColumns ? left : kRunColumns;
    unpack_run<T>(run, work);
    NextCodes next =
        NextCodes::after(run.w, run.tile, T, run.first, run.columns, run.rows / kRunRows + 1);
    int64_t r = 0;
    for (; r + kRunRows <= run.rows; r += kRunRows) {
      next.ask();
      run_rows<kRunRows, T>(run, r, work);
    }
    for (; r + 2 <= run.rows; r += 2) run_rows<2, T>(run, r, work);
    if (r < run.rows) run_rows<1, T>(run, r, work);
  }
}

// Tiles [tile_begin, tile_end), those with such steps here and the others as `by_groups` does: a
// tile's own scales decide, whichever tiles are computed together with it.
void linear_runs(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                 int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy,
                 decltype(KernelTable::linear_q4) by_groups) {
  constexpr int64_t kTilesOfBoth = kRunTiles * kTilesTogether;
  constexpr decltype(&run_tiles<1>) run_of[] = {run_tiles<1>, run_tiles<2>, run_tiles<3>,
                                                run_tiles<4>};
  RunWorkspace work;
  int64_t tiles;
  for (int64_t tile = tile_begin; tile < tile_end; tile += tiles) {
    const bool steps = have_steps(w, tile);
    const int64_t most = steps ? kRunTiles : kTilesOfBoth, left = tile_end - tile;
    for (tiles = 1; tiles < most && tiles < left && have_steps(w, tile + tiles) == steps;) ++tiles;
    if (!steps) {
      by_groups(x, w, bias, tile, tile + tiles, y, ldy);
      continue;
    }
    for (int64_t first = 0; first < x.rows; first += kMostRows) {
      const int64_t rows = x.rows - first < kMostRows ? x.rows - first : kMostRows;
      run_of[tiles - 1]({x, w, bias, y, ldy, tile, first, rows}, work);
    }
  }
}

}  // namespace
}  // namespace satchel
