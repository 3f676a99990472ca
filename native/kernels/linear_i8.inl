// Linear layers of unsigned codes and signed 8-bit weights, for any lane width.
// Sums are exact, so that blocking and instruction sets make no difference.
// Included after linear_float.inl and a dots_*.h.

namespace satchel {
namespace {

// What becomes of the sums of one row and one tile; `sums` has kTileVectors of them.
inline void finish_tile(const IntegerResult& r, const IntegerMatrix& w, int64_t row, int64_t tile,
                        const I* sums) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  // Further from 0 than this, the code is 0 or 255 whatever out_zero is.
  const F most = broadcast(512.0f), least = broadcast(-512.0f);
  for (int v = 0; v < kTileVectors; ++v) {
    const int64_t output = tile * kTileRows + v * kLanes, n = w.rows - output;
    if (n <= 0) return;
    const bool full = n >= kLanes;
    const auto vector = [=](const float* p) { return full ? load(p + output) : load_n(p + output, n); };
    const I sum = sums[v] - load_whole(w.sums + output) * r.x_zero;
    F t = to_floats(sum) * vector(r.scale);
    if (r.bias) t = t + vector(r.bias);
    if (r.residual) {
      const uint8_t* from = r.residual + row * r.ldr + output;
      uint8_t codes[kLanes] = {};
      if (!full) std::memcpy(codes, from, static_cast<size_t>(n));
      const F code = load_codes(full ? from : codes);
      t = t + (code - broadcast(static_cast<float>(r.residual_zero))) * broadcast(r.residual_scale);
    }
    t = activated(r.activation, t);
    const int64_t at = row * r.ldo + output;
    if (r.inverse_out_scale == 0.0f) {
      float* out = static_cast<float*>(r.out) + at;
      full ? store(out, t) : store_n(out, t, n);
      continue;
    }
    t = smaller(most, larger(least, t * broadcast(r.inverse_out_scale)));
    t = (t + broadcast(kRound)) - broadcast(kRound) + broadcast(static_cast<float>(r.out_zero));
    t = smaller(broadcast(255.0f), larger(broadcast(0.0f), t));
    const U code = to_bits(t + broadcast(kRound));  // its low byte is the code
    uint8_t* out = static_cast<uint8_t*>(r.out) + at;
    if (full) {
      store_bytes(reinterpret_cast<int8_t*>(out), code);
    } else {
      int8_t codes[kLanes];
      store_bytes(codes, code);
      std::memcpy(out, codes, static_cast<size_t>(n));
    }
  }
}

template <int M, int T>
inline void integer_block(const uint8_t* x, int64_t ldx, const IntegerMatrix& w,
                          const IntegerResult& result, int64_t row, int64_t tile) {
  Dots dots[M][T][kTileVectors];
  for (int m = 0; m < M; ++m) {
    for (int t = 0; t < T; ++t) {
      for (int v = 0; v < kTileVectors; ++v) dots[m][t][v] = no_dots();
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
  for (int m = 0; m < M; ++m) {
    for (int t = 0; t < T; ++t) {
      I sums[kTileVectors];
      for (int v = 0; v < kTileVectors; ++v) sums[v] = sums_of(dots[m][t][v]);
      finish_tile(result, w, row + m, tile + t, sums);
    }
  }
}

// A block of as many rows as m says, up to M.
template <int M, int T>
inline void integer_rows(int64_t m, const uint8_t* x, int64_t ldx, const IntegerMatrix& w,
                         const IntegerResult& result, int64_t row, int64_t tile) {
  if constexpr (M > 1) {
    if (m < M) return integer_rows<M - 1, T>(m, x, ldx, w, result, row, tile);
  }
  integer_block<M, T>(x, ldx, w, result, row, tile);
}

void linear_i8(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
               const IntegerResult& result, int64_t tile_begin, int64_t tile_end) {
  // Blocks of rows as equal as can be; the tiles stay in the cache while all rows pass over them.
  const int64_t blocks = (m + kIntegerRows - 1) / kIntegerRows;
  for (int64_t tile = tile_begin; tile < tile_end; tile += kIntegerTiles) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t row = block * m / blocks, rows = (block + 1) * m / blocks - row;
      if (tile + kIntegerTiles <= tile_end) {
        integer_rows<kIntegerRows, kIntegerTiles>(rows, x, ldx, w, result, row, tile);
      } else {
        integer_rows<kIntegerRows, 1>(rows, x, ldx, w, result, row, tile);
      }
    }
  }
}

}  // namespace
}  // namespace satchel
