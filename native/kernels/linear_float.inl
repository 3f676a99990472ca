// Linear layers with f32 and f16 weights, for any lane width.
// Each output is one chain of multiply-adds over the columns in order, whatever the blocking, so
// that a token gives the same numbers alone and in a block.
// Included inside a lanes_*.h translation unit.

namespace satchel {
namespace {

constexpr int kTileVectors = 16 / kLanes;

inline F load_weight(const float* p) { return load(p); }
inline F load_weight(const uint16_t* p) { return load_half(p); }

inline int64_t rows_in_tile(const PackedMatrix& w, int64_t tile) {
  const int64_t rest = w.rows - tile * kTileRows;
  return rest < kTileRows ? rest : kTileRows;
}

// Writes the first n of a tile's 16 outputs.
inline void store_tile(float* y, const F* values, int64_t n) {
  for (int v = 0; v < kTileVectors; ++v, n -= kLanes) {
    if (n >= kLanes) {
      store(y + v * kLanes, values[v]);
    } else if (n > 0) {
      store_n(y + v * kLanes, values[v], n);
    }
  }
}

// The first n of 16 values, and zeros for the rest.
inline void load_tile(const float* values, int64_t n, F* out) {
  for (int v = 0; v < kTileVectors; ++v, n -= kLanes) {
    const float* p = values + v * kLanes;
    out[v] = n <= 0 ? broadcast(0.0f) : n >= kLanes ? load(p) : load_n(p, n);
  }
}

// The first n of a tile's 16 biases, or zeros.
inline void load_bias(const float* bias, int64_t n, F* out) {
  load_tile(bias, bias == nullptr ? 0 : n, out);
}
inline void load_bias(const float* bias, int64_t tile, int64_t n, F* out) {
  load_bias(bias == nullptr ? nullptr : bias + tile * kTileRows, n, out);
}

// A part of the columns of some tiles, against some rows of x. `bias` is that of the first tile.
template <class Weight>
struct FloatPart {
  const float* x;
  int64_t ldx;
  const Weight* weights;
  int64_t tile_stride;  // from one tile to the next, in weights
  int64_t cols;
  const float* bias;
  int64_t outputs;  // that are left from the first tile on: in the last one not all may be there
  Activation activation;
  const float* residual;  // of the first tile, or null
  bool first, last;       // whether these are the first columns, the last
  float* y;
  int64_t ldy;
  Lines next;  // that are needed soon: they come while the products are computed
};

// Columns between which lines are asked for. All at once would take the core's requests from its
// loads.
constexpr int64_t kColsPerRequest = 16;

// M rows and T whole tiles.
template <int M, int T, class Weight>
__attribute__((noinline)) void float_block(const FloatPart<Weight>& part) {
  F acc[M][T][kTileVectors];
  // Another core may have the lines of the result: they come while the products are computed.
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) {
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      __builtin_prefetch(part.y + m * part.ldy + t * kTileRows, 1);
      if (part.residual) __builtin_prefetch(part.residual + m * part.ldy + t * kTileRows);
    }
  }
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) {
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const float* so_far = part.y + m * part.ldy + t * kTileRows;
      SATCHEL_UNROLL
      for (int v = 0; v < kTileVectors; ++v)
        acc[m][t][v] = part.first ? broadcast(0.0f) : load(so_far + v * kLanes);
    }
  }
  // Three rows share a base, so that the addresses of all rows fit in registers.
  constexpr int kBases = (M + 2) / 3;
  const float* bases[kBases];
  for (int i = 0; i < kBases; ++i) bases[i] = part.x + 3 * i * part.ldx;
  const int64_t ldx = part.ldx;
  const Weight* weights = part.weights;
  const auto multiply = [&](int64_t cols) __attribute__((always_inline)) {
    for (int64_t k = 0; k < cols; ++k) {
      F row[T][kTileVectors];
      SATCHEL_UNROLL
      for (int t = 0; t < T; ++t) {
        SATCHEL_UNROLL
        for (int v = 0; v < kTileVectors; ++v) {
          row[t][v] = load_weight(weights + t * part.tile_stride + v * kLanes);
        }
      }
      weights += kTileRows;
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        const F value = broadcast(bases[m / 3][m % 3 * ldx]);
        SATCHEL_UNROLL
        for (int t = 0; t < T; ++t) {
          SATCHEL_UNROLL
          for (int v = 0; v < kTileVectors; ++v) {
            acc[m][t][v] = fma(value, row[t][v], acc[m][t][v]);
          }
        }
      }
      SATCHEL_UNROLL
      for (int i = 0; i < kBases; ++i) ++bases[i];
    }
  };
  // Without lines to ask for, all columns are one part.
  const int64_t together = part.next.count == 0 ? part.cols : kColsPerRequest;
  const int64_t requests =
      part.next.count == 0 ? 0 : (part.next.count * kColsPerRequest + part.cols - 1) / part.cols;
  const uint8_t* next = part.next.from;
  const uint8_t* end = next + part.next.count * 64;
  for (int64_t k = 0; k < part.cols; k += together) {
    for (int64_t i = 0; i < requests && next < end; ++i, next += 64) __builtin_prefetch(next, 0, 2);
    multiply(k + together < part.cols ? together : part.cols - k);
  }
  SATCHEL_UNROLL
  for (int t = 0; t < T; ++t) {
    F offset[kTileVectors];
    load_bias(part.last && part.bias ? part.bias + t * kTileRows : nullptr, kTileRows, offset);
    SATCHEL_UNROLL
    for (int m = 0; m < M; ++m) {
      const int64_t at = m * part.ldy + t * kTileRows;
      SATCHEL_UNROLL
      for (int v = 0; v < kTileVectors; ++v) {
        F sum = acc[m][t][v];
        if (part.last) sum = sum + offset[v];
        if (part.last && part.residual) sum = sum + load(part.residual + at + v * kLanes);
        store(part.y + at + v * kLanes, sum);
      }
    }
  }
  if (part.last && part.activation != Activation::none) {
    for (int m = 0; m < M; ++m) {
      float* y = part.y + m * part.ldy;
      activate(part.activation, y, T * kTileRows, y);
    }
  }
}

// A block of as many rows as m says, up to M.
template <int M, int T, class Weight>
inline void float_rows(int64_t m, const FloatPart<Weight>& part) {
  if constexpr (M > 1) {
    if (m < M) return float_rows<M - 1, T, Weight>(m, part);
  }
  float_block<M, T, Weight>(part);
}

inline void copy_rows(const float* from, int64_t from_stride, int64_t rows, int64_t n, float* to,
                      int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * to_stride, from + row * from_stride, sizeof(float) * n);
}

// The same where the last tile may have outputs that are not there: by way of rows that have them.
template <int M, int T, class Weight>
void float_tiles(int64_t m, const FloatPart<Weight>& part) {
  constexpr int64_t kWidth = T * kTileRows;
  if (part.outputs >= kWidth) return float_rows<M, T, Weight>(m, part);
  float y[M * kWidth] = {}, residual[M * kWidth] = {}, bias[kWidth] = {};
  FloatPart<Weight> whole = part;
  whole.y = y, whole.ldy = kWidth;
  if (!part.first) copy_rows(part.y, part.ldy, m, part.outputs, y, kWidth);
  if (part.residual) {
    copy_rows(part.residual, part.ldy, m, part.outputs, residual, kWidth);
    whole.residual = residual;
  }
  if (part.bias) {
    copy_rows(part.bias, 0, 1, part.outputs, bias, 0);
    whole.bias = bias;
  }
  float_rows<M, T, Weight>(m, whole);
  copy_rows(y, kWidth, m, part.outputs, part.y, part.ldy);
}

// Columns of a block's tiles that all rows pass over before the next.
constexpr int64_t kFloatCols = 512;
// Weights, and rows, of so many bytes stay in the second-level cache.
constexpr int64_t kStayingBytes = 1 << 18, kStayingRowBytes = 1 << 19;

// The columns [begin, end) of some tiles of a weight, which lie `stride` bytes apart.
struct FloatPanel {
  const uint8_t* from;
  int64_t tiles, bytes, stride;

  // A part of its lines.
  Lines part(int64_t index, int64_t parts) const {
    if (bytes == 0) return {};
    const int64_t lines = bytes / 64, first = index * tiles * lines / parts,
                  last = (index + 1) * tiles * lines / parts;
    if (first == last) return {};
    const int64_t at = first % lines, count = last - first < lines - at ? last - first : lines - at;
    return {from + first / lines * stride + at * 64, count};
  }
};

template <class Weight>
void linear_float(const float* x, int64_t ldx, int64_t m, const PackedMatrix& w, const float* bias,
                  FloatFinish finish, int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  const Weight* weights = reinterpret_cast<const Weight*>(w.codes);
  const int64_t tile_stride = w.cols * kTileRows;
  const auto part = [&](int64_t tile, int64_t row, int64_t begin, int64_t end, Lines next = {}) {
    const int64_t output = tile * kTileRows;
    return FloatPart<Weight>{x + row * ldx + begin,
                             ldx,
                             weights + tile * tile_stride + begin * kTileRows,
                             tile_stride,
                             end - begin,
                             bias ? bias + output : nullptr,
                             w.rows - output,
                             finish.activation,
                             finish.residual ? finish.residual + row * ldy + output : nullptr,
                             begin == 0,
                             end == w.cols,
                             y + row * ldy + output,
                             ldy,
                             next};
  };
  if (m == 1) {
    int64_t tile = tile_begin;
    for (; tile + kFloatTilesForOneRow <= tile_end; tile += kFloatTilesForOneRow) {
      float_tiles<1, kFloatTilesForOneRow, Weight>(1, part(tile, 0, 0, w.cols));
    }
    for (; tile < tile_end; ++tile) float_tiles<1, 1, Weight>(1, part(tile, 0, 0, w.cols));
    return;
  }
  // Blocks of rows as equal as can be.
  const int64_t blocks = (m + kFloatRows - 1) / kFloatRows;
  const FloatPanel behind{finish.next.from, 1, finish.next.count * 64, 0};
  const int64_t bytes =
      (tile_end - tile_begin) * tile_stride * static_cast<int64_t>(sizeof(Weight));
  if (bytes <= kStayingBytes && w.cols <= kFloatCols) {
    // All of the weight stays in the second-level cache: results are written row by row.
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t row = block * m / blocks, rows = (block + 1) * m / blocks - row;
      Lines next = behind.part(block, blocks);
      for (int64_t tile = tile_begin; tile < tile_end; tile += kFloatTiles, next = {}) {
        if (tile + kFloatTiles <= tile_end) {
          float_tiles<kFloatRows, kFloatTiles, Weight>(rows, part(tile, row, 0, w.cols, next));
        } else {
          float_tiles<kFloatRows, 1, Weight>(rows, part(tile, row, 0, w.cols, next));
        }
      }
    }
    return;
  }
  // Panels of some tiles and columns, one after the other; while one is at work, the next comes
  // from memory. Where the rows are too long to stay, all tiles pass over some of their columns
  // before the next.
  const int64_t strips = (tile_end - tile_begin + kFloatTiles - 1) / kFloatTiles;
  const int64_t parts = (w.cols + kFloatCols - 1) / kFloatCols, panels = strips * parts;
  const bool by_columns = m * w.cols * static_cast<int64_t>(sizeof(float)) > kStayingRowBytes;
  const auto columns_before = [&](int64_t index) { return index * w.cols / parts; };
  const auto panel_at = [&](int64_t tile, int64_t index) {
    constexpr int64_t kColBytes = kTileRows * static_cast<int64_t>(sizeof(Weight));
    const int64_t begin = columns_before(index), cols = columns_before(index + 1) - begin;
    const int64_t left = (w.rows + kTileRows - 1) / kTileRows - tile;
    const uint8_t* from =
        reinterpret_cast<const uint8_t*>(weights + tile * tile_stride + begin * kTileRows);
    return FloatPanel{from, left < kFloatTiles ? left : kFloatTiles, cols * kColBytes,
                      w.cols * kColBytes};
  };
  const auto tile_of = [&](int64_t panel) {
    return tile_begin + (by_columns ? panel % strips : panel / parts) * kFloatTiles;
  };
  const auto part_of = [&](int64_t panel) { return by_columns ? panel / strips : panel % parts; };
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t tile = tile_of(panel), begin = columns_before(part_of(panel)),
                  end = columns_before(part_of(panel) + 1);
    // The last one is followed by the tiles of the next call.
    const FloatPanel next = panel + 1 < panels ? panel_at(tile_of(panel + 1), part_of(panel + 1))
                            : tile_end * kTileRows < w.rows ? panel_at(tile_end, 0)
                                                            : behind;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t row = block * m / blocks, rows = (block + 1) * m / blocks - row;
      const Lines lines = next.part(block, blocks);
      if (tile + kFloatTiles <= tile_end) {
        float_tiles<kFloatRows, kFloatTiles, Weight>(rows, part(tile, row, begin, end, lines));
      } else {
        float_tiles<kFloatRows, 1, Weight>(rows, part(tile, row, begin, end, lines));
      }
    }
  }
}

}  // namespace
}  // namespace satchel
