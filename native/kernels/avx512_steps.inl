// Weights of 4 bits whose scales are whole multiples of a step, against rows of activations.
//
// The products of a run of columns add up to a whole number: each group's sum times its multiple.
// 32 bits hold it exactly, in whatever order it is made, and it is scaled once. So a row gives the
// same floats alone and beside others, and nothing is left to the units that multiply floats, which
// are the ones that multiply bytes. Weights are unpacked in registers while a few rows meet them.
// Included in avx512.cpp.

namespace satchel {
namespace {

// Rows that share registers: see RowBlocks.
constexpr int64_t kStepRows = 4, kMostStepRows = 6;
constexpr int kStepTiles = 2;
constexpr int64_t kStripBytes = 192 * 1024;  // of codes, that all rows find in the cache

// The codes that come next, of which several rows ask for a few lines with each group: in larger
// portions, what is multiplied would wait for what is not needed yet.
struct CodesAhead {
  const uint8_t* at = nullptr;
  int64_t lines = 0;

  void ask() {
    for (int64_t i = 0; i < lines; ++i, at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
    }
  }
};

struct StepJob {
  const QuantizedRows& x;
  const PackedMatrix& w;
  const float* bias;
  float* y;
  int64_t ldy;
};

// One run of columns of T tiles at a distance.
template <int T>
class StepRun {
 public:
  StepRun(const PackedMatrix& w, int64_t tile, int64_t distance)
      : codes_(w.codes + tile * w.cols * 8),
        to_next_codes_(distance * w.cols * 8),
        scales_(reinterpret_cast<const int8_t*>(w.scales + tile * scales_in_tile(w))),
        to_next_scales_(2 * distance * scales_in_tile(w)) {}

  __m512i codes(int t, int64_t step) const {
    return load_bytes(codes_ + t * to_next_codes_ + step * 64);
  }
  F step(int t) const {
    return load(reinterpret_cast<const float*>(scales_ + t * to_next_scales_));
  }
  __m512i multiples(int t, int64_t group) const {
    const int8_t* at = scales_ + t * to_next_scales_ + kStepBytes + group * kTileRows;
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  // For a single row.
  void ask(const StreamsAhead& streams, int64_t step, int64_t steps) const {
    streams.ask<T>(codes_ + step * 64, to_next_codes_, steps * 64);
  }
  void next(int64_t columns, int64_t groups) {
    codes_ += columns * 8;
    scales_ += kStepBytes + groups * kTileRows;
  }

 private:
  static constexpr int64_t kStepBytes = kTileRows * sizeof(float);
  const uint8_t* codes_;
  int64_t to_next_codes_;
  const int8_t* scales_;
  int64_t to_next_scales_;
};

// 8 columns of T tiles for M rows.
template <int M, int T>
[[gnu::always_inline]] inline void add_step(const QuantizedRows& x, const int8_t* activations,
                                            const StepRun<T>& run, int64_t step,
                                            __m512i (&dots)[T][M]) {
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512i first[M], second[M];
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) {
    first[m] = broadcast4(activations + m * x.stride + step * 8);
    second[m] = broadcast4(activations + m * x.stride + step * 8 + 4);
  }
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) {
    const __m512i bytes = run.codes(t, step);
    const __m512i low = _mm512_and_si512(bytes, nibble);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) accumulate(dots[t][m], low, first[m]);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) accumulate(dots[t][m], high, second[m]);
  }
}

// The sums of a run's products for M rows. Where a group has as many steps of 8 columns as
// kGroupSteps says, no loop is left in it.
template <int M, int T, int kGroupSteps>
inline void add_run(const QuantizedRows& x, const int8_t* activations, const int32_t* sums,
                    const StepRun<T>& run, int64_t groups, int64_t group, CodesAhead& ahead,
                    __m512i (*totals)[M]) {
  const int64_t all_groups = x.cols / group, group_steps = group / Q4::kColumns;
  const StreamsAhead streams(x);
  for (int64_t g = 0; g < groups; ++g) {
    if constexpr (M > 1) ahead.ask();
    if constexpr (M == 1) run.ask(streams, g * group_steps, group_steps);
    __m512i dots[T][M];
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      const __m512i start = _mm512_set1_epi32(-Q4::kOffset * sums[m * all_groups + g]);
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) dots[t][m] = start;
    }
    if constexpr (kGroupSteps > 0) {
      SATCHEL_UNROLL
      for (int i = 0; i < kGroupSteps; ++i)
        add_step<M, T>(x, activations, run, g * kGroupSteps + i, dots);
    } else {
      for (int64_t step = g * group_steps; step < (g + 1) * group_steps; ++step) {
        add_step<M, T>(x, activations, run, step, dots);
      }
    }
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const __m512i multiple = run.multiples(t, g);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        const __m512i product = _mm512_mullo_epi32(dots[t][m], multiple);
        totals[t][m] = _mm512_add_epi32(totals[t][m], product);
      }
    }
  }
}

// M rows against T tiles at a distance.
template <int M, int T, int kGroupSteps>
void step_block(const StepJob& job, int64_t row, int64_t tile, int64_t distance,
                CodesAhead& ahead) {
  const QuantizedRows& x = job.x;
  const PackedMatrix& w = job.w;
  const int64_t group = w.group;
  StepRun<T> run(w, tile, distance);
  const int8_t* activations = x.codes + row * x.stride;
  const int32_t* sums = x.sums + row * (w.cols / group);
  F acc[T][M];
  for (int t = 0; t < T; ++t) {
    for (int m = 0; m < M; ++m) acc[t][m] = broadcast(0.0f);
  }
  for (int64_t first = 0; first < w.cols; first += kRunColumns) {
    const int64_t columns = lesser(kRunColumns, w.cols - first), groups = columns / group;
    __m512i totals[T][M];
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) totals[t][m] = _mm512_setzero_si512();
    }
    add_run<M, T, kGroupSteps>(x, activations + first, sums + first / group, run, groups, group,
                               ahead, totals);
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const F step = run.step(t);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        acc[t][m] = fma(_mm512_cvtepi32_ps(totals[t][m]), step, acc[t][m]);
      }
    }
    run.next(columns, groups);
  }
  for (int t = 0; t < T; ++t) {
    const int64_t at = tile + t * distance, n = rows_in_tile(w, at);
    F offset;
    load_bias(job.bias, at, n, &offset);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      const F result = acc[t][m] * broadcast(x.scales[row + m]) + offset;
      store_tile(job.y + (row + m) * job.ldy + at * kTileRows, &result, n);
    }
  }
}

// M rows against a range of tiles: T streams that stay apart, so that each is long.
template <int M>
void step_tiles(const StepJob& job, int64_t row, int64_t tile_begin, int64_t tile_end,
                CodesAhead ahead) {
  constexpr int T = M == 1 ? kTilesForOneRow : kStepTiles;
  const bool usual = job.w.group == 32;
  const auto several = usual ? step_block<M, T, 4> : step_block<M, T, 0>;
  const auto single = usual ? step_block<M, 1, 4> : step_block<M, 1, 0>;
  const int64_t distance = (tile_end - tile_begin) / T;
  for (int64_t i = 0; i < distance; ++i) several(job, row, tile_begin + i, distance, ahead);
  for (int64_t i = tile_begin + distance * T; i < tile_end; ++i) single(job, row, i, 0, ahead);
}

// How many rows, or tokens of two rows, there are, and how many share registers: so many at a time,
// or up to `most` where a second pass over the weights is saved.
struct RowBlocks {
  int64_t rows, together, most;

  int64_t count() const { return rows <= most ? 1 : (rows + together - 1) / together; }
};

// Blocks of rows after each other over strips of tiles: all find a strip in the cache, and each
// asks for its share of the next. tiles_of[n - 1] is for n rows.
using StepTiles = void (*)(const StepJob& job, int64_t row, int64_t tile_begin, int64_t tile_end,
                           CodesAhead ahead);
void walk_strips(const StepJob& job, const RowBlocks& rows, int64_t bytes_in_column,
                 int64_t tile_begin, int64_t tile_end, const StepTiles* tiles_of) {
  const int64_t tile_bytes = job.w.cols * bytes_in_column, blocks = rows.count();
  const int64_t pairs = greater<int64_t>(1, kStripBytes / (kStepTiles * tile_bytes));
  const int64_t strip = pairs * kStepTiles;
  for (int64_t tile = tile_begin; tile < tile_end; tile += strip) {
    const int64_t end = lesser(tile + strip, tile_end);
    const int64_t lines = (kStepTiles * job.w.group * bytes_in_column / 64 + blocks - 1) / blocks;
    const int64_t share = (end - tile) * tile_bytes / blocks / 64 * 64;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t row = b * rows.rows / blocks, count = (b + 1) * rows.rows / blocks - row;
      const CodesAhead ahead{job.w.codes + end * tile_bytes + b * share, lines};
      tiles_of[count - 1](job, row, tile, end, ahead);
    }
  }
}

void linear_steps(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                  int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  constexpr StepTiles tiles_of[kMostStepRows] = {step_tiles<1>, step_tiles<2>, step_tiles<3>,
                                                 step_tiles<4>, step_tiles<5>, step_tiles<6>};
  const StepJob job{x, w, bias, y, ldy};
  if (x.rows == 1) return step_tiles<1>(job, 0, tile_begin, tile_end, {});
  walk_strips(job, {x.rows, kStepRows, kMostStepRows}, 64 / Q4::kColumns, tile_begin, tile_end,
              tiles_of);
}

}  // namespace
}  // namespace satchel
