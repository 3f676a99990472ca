// What integer layers make of their sums, for any lane width. Included after linear_float.inl.

namespace satchel {
namespace {

// Sums of a block in memory: 16 of a row and tile lie together.
struct BlockSums {
  const int32_t* sums;
  int64_t row_stride, tile_stride;  // in sums
};

// What becomes of the sums of a tile's outputs, row by row.
struct TileFinish {
  const IntegerResult& r;
  int64_t output, there;  // the first output, and how many are left from it on
  F scale[kTileVectors], bias[kTileVectors];
  I correction[kTileVectors];
  F lowest, highest;  // of what is rounded to a code

  TileFinish(const IntegerResult& result, const IntegerMatrix& w, int64_t tile)
      : r(result), output(tile * kTileRows), there(w.rows - output) {
    load_tile(r.scale + output, there, scale);
    load_bias(r.bias ? r.bias + output : nullptr, there, bias);
    for (int v = 0; v < kTileVectors; ++v) {
      correction[v] = load_whole(w.sums + output + v * kLanes) * r.x_zero;
    }
    lowest = broadcast(static_cast<float>(-r.out_zero));
    highest = broadcast(static_cast<float>(255 - r.out_zero));
  }

  inline void row(int64_t row, const int32_t* sums) const {
    for (int v = 0; v < kTileVectors; ++v) {
      const int64_t n = there - v * kLanes, at = output + v * kLanes;
      if (n <= 0) return;
      F t = to_floats(load_whole(sums + v * kLanes) - correction[v]) * scale[v] + bias[v];
      if (r.residual) t = t + residual(r.residual + row * r.ldr + at, n);
      t = activated(r.activation, t);
      if (r.inverse_out_scale == 0.0f) {
        float* out = static_cast<float*>(r.out) + row * r.ldo + at;
        n >= kLanes ? store(out, t) : store_n(out, t, n);
      } else {
        store_code(static_cast<uint8_t*>(r.out) + row * r.ldo + at, t, n);
      }
    }
  }

 private:
  F residual(const uint8_t* from, int64_t n) const {
    uint8_t codes[kLanes] = {};
    if (n < kLanes) std::memcpy(codes, from, static_cast<size_t>(n));
    const F code = load_codes(n < kLanes ? codes : from);
    return (code - broadcast(static_cast<float>(r.residual_zero))) * broadcast(r.residual_scale);
  }

  // The limits are whole numbers, so it is the same to round first.
  void store_code(uint8_t* out, F t, int64_t n) const {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    t = smaller(highest, larger(lowest, t * broadcast(r.inverse_out_scale)));
    const U code = to_bits(t + broadcast(kRound)) + static_cast<uint32_t>(r.out_zero);
    if (n >= kLanes) return store_bytes(reinterpret_cast<int8_t*>(out), code);
    int8_t codes[kLanes];
    store_bytes(codes, code);
    std::memcpy(out, codes, static_cast<size_t>(n));
  }
};

// What is rounded to codes. relu and relu6 are limits too: a step is positive, so that it is the same
// to limit before and after dividing by it.
struct CodeRange {
  F inverse, lowest, highest;
  int32_t zero, lowest_code;

  explicit CodeRange(const IntegerResult& r)
      : inverse(broadcast(r.inverse_out_scale)), zero(r.out_zero), lowest_code(0) {
    const bool positive = r.activation == Activation::relu || r.activation == Activation::relu6;
    if (positive) lowest_code = zero;
    lowest = broadcast(static_cast<float>(lowest_code - zero));
    const float six = 6.0f * r.inverse_out_scale, most = static_cast<float>(255 - zero);
    highest = broadcast(r.activation == Activation::relu6 && six < most ? six : most);
  }
};

#ifndef SATCHEL_STORES_CODE_ROWS
// Codes of V vectors of numbers that lie one after the other.
template <int V>
inline void store_code_row(uint8_t* out, const F* numbers, const CodeRange& range) {
  constexpr float kRound = 12582912.0f;
  SATCHEL_UNROLL
  for (int v = 0; v < V; ++v) {
    const F t = smaller(range.highest, larger(range.lowest, numbers[v] * range.inverse));
    const U code = to_bits(t + broadcast(kRound)) + static_cast<uint32_t>(range.zero);
    store_bytes(reinterpret_cast<int8_t*>(out) + v * kLanes, code);
  }
}
#endif

// Rows of T whole tiles, as codes.
template <int T, bool kWithResidual, class Function>
inline void code_rows(const IntegerResult& r, const IntegerMatrix& w, int64_t tile, int64_t row,
                      int64_t rows, const BlockSums& block, Function function) {
  constexpr int V = T * kTileVectors;
  const int64_t output = tile * kTileRows;
  F scale[V], bias[V];
  I correction[V];
  SATCHEL_UNROLL
  for (int v = 0; v < V; ++v) {
    scale[v] = load(r.scale + output + v * kLanes);
    bias[v] = r.bias ? load(r.bias + output + v * kLanes) : broadcast(0.0f);
    correction[v] = load_whole(w.sums + output + v * kLanes) * r.x_zero;
  }
  const CodeRange range(r);
  const F residual_zero = broadcast(static_cast<float>(r.residual_zero));
  const F residual_scale = broadcast(r.residual_scale);
  uint8_t* out = static_cast<uint8_t*>(r.out) + row * r.ldo + output;
  const uint8_t* residual = kWithResidual ? r.residual + row * r.ldr + output : nullptr;
  const int32_t* sums = block.sums;
  for (int64_t m = 0; m < rows; ++m, out += r.ldo, sums += block.row_stride) {
    F numbers[V];
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) {
      const int32_t* at = sums + v / kTileVectors * block.tile_stride + v % kTileVectors * kLanes;
      F t = to_floats(load_whole(at) - correction[v]) * scale[v] + bias[v];
      if constexpr (kWithResidual) {
        t = t + (load_codes(residual + v * kLanes) - residual_zero) * residual_scale;
      }
      numbers[v] = function(t);
    }
    store_code_row<V>(out, numbers, range);
    if constexpr (kWithResidual) residual += r.ldr;
  }
}

template <int T, class Function>
inline void code_rows(const IntegerResult& r, const IntegerMatrix& w, int64_t tile, int64_t row,
                      int64_t rows, const BlockSums& block, Function function) {
  r.residual ? code_rows<T, true>(r, w, tile, row, rows, block, function)
             : code_rows<T, false>(r, w, tile, row, rows, block, function);
}

// What becomes of the sums of some rows and T tiles.
template <int T>
__attribute__((noinline)) void finish_rows(const IntegerResult& r, const IntegerMatrix& w,
                                           int64_t tile, int64_t row, int64_t rows,
                                           const BlockSums& block) {
  if (r.inverse_out_scale == 0.0f || (tile + T) * kTileRows > w.rows) {
    for (int t = 0; t < T; ++t) {
      const TileFinish finish(r, w, tile + t);
      const int32_t* sums = block.sums + t * block.tile_stride;
      for (int64_t m = 0; m < rows; ++m) finish.row(row + m, sums + m * block.row_stride);
    }
    return;
  }
  switch (r.activation) {
    case Activation::none:
    case Activation::relu:
    case Activation::relu6:
      return code_rows<T>(r, w, tile, row, rows, block, [](F x) { return x; });
    case Activation::hardswish:
      return code_rows<T>(r, w, tile, row, rows, block, [](F x) { return x * hardsigmoid_of(x); });
    default:
      return code_rows<T>(r, w, tile, row, rows, block,
                          [&](F x) { return activated(r.activation, x); });
  }
}

}  // namespace
}  // namespace satchel
