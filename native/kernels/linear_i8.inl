// Linear layers of unsigned codes and signed 8-bit weights, for any lane width.
// Sums are exact, so that blocking and instruction sets make no difference.
// Included after integer_finish.inl and a dots_*.h. Where instructions take more than a step of
// four columns, a table has its own way to add up a block: see i8mm_integer.cpp.

namespace satchel {
namespace {

template <int M, int T>
inline void integer_block(const CodeWindows& x, int64_t steps, const uint8_t* first,
                          const IntegerMatrix& w, const IntegerResult& result, int64_t tile,
                          int32_t* sums) {
  Dots dots[M][T][kTileVectors];
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) {
    SATCHEL_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      const Dots start =
          dots_from(first_sums(result, w, (tile + t) * kTileRows + v * kLanes, kCodeShift));
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) dots[m][t][v] = start;
    }
  }
  // Three rows share a base, so that the addresses of all rows fit in registers.
  constexpr int kBases = (M + 2) / 3;
  const uint8_t* bases[kBases];
  const int64_t ldx = x.pixel_step;
  for (int i = 0; i < kBases; ++i) bases[i] = first + 3 * i * ldx;
  const int64_t tile_stride = w.steps * 4 * kTileRows;
  const int8_t* weights = w.codes + tile * tile_stride;
  for (int64_t left = x.kernel_rows;;) {
    for (int64_t s = 0; s < steps; ++s) {
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
    if (--left == 0) break;
    for (int i = 0; i < kBases; ++i) bases[i] += x.pitch - 4 * steps;
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

// The sums of M rows and T tiles from the first byte of the first row on.
struct DotBlocks {
  template <int M, int T>
  static inline void add_up(const CodeWindows& x, int64_t steps, const uint8_t* first,
                            const IntegerMatrix& w, const IntegerResult& result, int64_t tile,
                            int32_t* sums) {
    integer_block<M, T>(x, steps, first, w, result, tile, sums);
  }
};

// A block of as many rows as m says, up to M.
template <class Blocks, int M, int T>
inline void integer_rows(int64_t m, const CodeWindows& x, int64_t steps, const uint8_t* first,
                         const IntegerMatrix& w, const IntegerResult& result, int64_t tile,
                         int32_t* sums) {
  if constexpr (M > 1) {
    if (m < M) return integer_rows<Blocks, M - 1, T>(m, x, steps, first, w, result, tile, sums);
  }
  Blocks::template add_up<M, T>(x, steps, first, w, result, tile, sums);
}

constexpr int64_t kBlocksTogether =
    4;  // whose sums are finished together, from the first-level cache

// All windows against T tiles; `steps` of each row of the kernel.
template <class Blocks, int T>
inline void integer_tiles(const CodeWindows& x, int64_t steps, const IntegerMatrix& w,
                          const IntegerResult& result, int64_t tile) {
  alignas(64) int32_t sums[kBlocksTogether * kIntegerRows * T * kTileRows];
  int64_t done = 0, waiting = 0, waiting_blocks = 0;
  const bool small = have_room(result, w, tile, T);
  const auto finish = [&] {
    finish_rows<T>(result, w, tile, done, waiting, {sums, T * kTileRows, kTileRows, small});
    done += waiting, waiting = waiting_blocks = 0;
  };
  // Blocks of pixels as equal as can be.
  const int64_t blocks = (x.row_pixels + kIntegerRows - 1) / kIntegerRows;
  for (int64_t y = 0; y < x.rows; ++y) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t pixel = block * x.row_pixels / blocks,
                    end = (block + 1) * x.row_pixels / blocks;
      const uint8_t* first = x.image + y * x.row_step + pixel * x.pixel_step;
      integer_rows<Blocks, kIntegerRows, T>(end - pixel, x, steps, first, w, result, tile,
                                            sums + waiting * T * kTileRows);
      waiting += end - pixel;
      if (++waiting_blocks == kBlocksTogether) finish();
    }
  }
  if (waiting > 0) finish();
}

template <class Blocks>
void add_up_windows(const CodeWindows& x, const IntegerMatrix& w, const IntegerResult& result,
                    int64_t tile_begin, int64_t tile_end) {
  const int64_t steps = x.kernel_rows == 1 ? w.steps : w.steps / x.kernel_rows;
  // The tiles stay in the cache while all windows pass over them.
  int64_t tile = tile_begin;
  for (; tile + kIntegerTiles <= tile_end; tile += kIntegerTiles) {
    integer_tiles<Blocks, kIntegerTiles>(x, steps, w, result, tile);
  }
  for (; tile < tile_end; ++tile) integer_tiles<Blocks, 1>(x, steps, w, result, tile);
}

[[maybe_unused]] void conv_i8(const CodeWindows& x, const IntegerMatrix& w,
                              const IntegerResult& result, int64_t tile_begin, int64_t tile_end) {
  add_up_windows<DotBlocks>(x, w, result, tile_begin, tile_end);
}

// Rows are pixels one behind the other, with kernels of one row.
[[maybe_unused]] void linear_i8(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                                const IntegerResult& result, int64_t tile_begin, int64_t tile_end) {
  conv_i8({x, 1, m, 0, ldx, 1, 0}, w, result, tile_begin, tile_end);
}

}  // namespace
}  // namespace satchel
