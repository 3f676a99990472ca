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

// The first n of a tile's 16 biases, or zeros.
inline void load_bias(const float* bias, int64_t tile, int64_t n, F* out) {
  for (int v = 0; v < kTileVectors; ++v, n -= kLanes) {
    const float* p = bias + tile * kTileRows + v * kLanes;
    out[v] = bias == nullptr || n <= 0 ? broadcast(0.0f) : n >= kLanes ? load(p) : load_n(p, n);
  }
}

template <int M, int T, class Weight>
inline void float_block(const float* x, int64_t ldx, const PackedMatrix& w, const float* bias,
                        int64_t tile, float* y, int64_t ldy) {
  const int64_t cols = w.cols;
  const Weight* weights = reinterpret_cast<const Weight*>(w.codes) + tile * cols * kTileRows;
  F acc[M][T][kTileVectors];
  for (int m = 0; m < M; ++m)
    for (int t = 0; t < T; ++t)
      for (int v = 0; v < kTileVectors; ++v) acc[m][t][v] = broadcast(0.0f);

  for (int64_t k = 0; k < cols; ++k) {
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const Weight* p = weights + (t * cols + k) * kTileRows;
      F row[kTileVectors];
      SATCHEL_UNROLL
      for (int v = 0; v < kTileVectors; ++v) row[v] = load_weight(p + v * kLanes);
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        const F value = broadcast(x[m * ldx + k]);
        SATCHEL_UNROLL
        for (int v = 0; v < kTileVectors; ++v) acc[m][t][v] = fma(value, row[v], acc[m][t][v]);
      }
    }
  }

  for (int t = 0; t < T; ++t) {
    const int64_t n = rows_in_tile(w, tile + t);
    F offset[kTileVectors];
    load_bias(bias, tile + t, n, offset);
    for (int m = 0; m < M; ++m) {
      for (int v = 0; v < kTileVectors; ++v) acc[m][t][v] = acc[m][t][v] + offset[v];
      store_tile(y + m * ldy + (tile + t) * kTileRows, acc[m][t], n);
    }
  }
}

template <class Weight>
void linear_float(const float* x, int64_t ldx, int64_t m, const PackedMatrix& w,
                  const float* bias, int64_t tile_begin, int64_t tile_end, float* y,
                  int64_t ldy) {
  if (m == 1) {
    int64_t tile = tile_begin;
    for (; tile + kFloatTiles <= tile_end; tile += kFloatTiles) {
      float_block<1, kFloatTiles, Weight>(x, ldx, w, bias, tile, y, ldy);
    }
    for (; tile < tile_end; ++tile) float_block<1, 1, Weight>(x, ldx, w, bias, tile, y, ldy);
    return;
  }
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    int64_t i = 0;
    for (; i + kFloatRows <= m; i += kFloatRows) {
      float_block<kFloatRows, 1, Weight>(x + i * ldx, ldx, w, bias, tile, y + i * ldy, ldy);
    }
    for (; i + 2 <= m; i += 2) {
      float_block<2, 1, Weight>(x + i * ldx, ldx, w, bias, tile, y + i * ldy, ldy);
    }
    if (i < m) float_block<1, 1, Weight>(x + i * ldx, ldx, w, bias, tile, y + i * ldy, ldy);
  }
}

}  // namespace
}  // namespace satchel
