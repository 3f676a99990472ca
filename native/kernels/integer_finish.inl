// What integer layers make of their sums, for any lane width. Included after linear_float.inl.

namespace satchel {
namespace {

// What the activation's zero point takes off: zero times the sum of a row of weights. Kernels whose sums
// start with it have it for nothing; to others, whose sums start at zero, it is added at the end.
inline I first_sums(const IntegerResult& r, const IntegerMatrix& w, int64_t output) {
  return load_whole(w.sums + output) * -r.x_zero;
}

// Sums of a block in memory: 16 of a row and tile lie together.
struct BlockSums {
  const int32_t* sums;
  int64_t row_stride, tile_stride;  // in sums
};

// What becomes of the sums of a tile's outputs, row by row.
struct TileFinish {
  const IntegerResult& r;
  int64_t output, there;  // the first output, and how many are left from it on
  I missing[kTileVectors];
  F scale[kTileVectors], bias[kTileVectors];
  F lowest, highest;  // of what is rounded to a code

  TileFinish(const IntegerResult& result, const IntegerMatrix& w, int64_t tile, bool from_zero)
      : r(result), output(tile * kTileRows), there(w.rows - output) {
    load_tile(r.scale + output, there, scale);
    load_bias(r.bias ? r.bias + output : nullptr, there, bias);
    for (int v = 0; v < kTileVectors; ++v) {
      missing[v] = from_zero ? first_sums(r, w, output + v * kLanes) : I{};
    }
    lowest = broadcast(static_cast<float>(-r.out_zero));
    highest = broadcast(static_cast<float>(255 - r.out_zero));
  }

  inline void row(int64_t row, const int32_t* sums) const {
    for (int v = 0; v < kTileVectors; ++v) {
      const int64_t n = there - v * kLanes, at = output + v * kLanes;
      if (n <= 0) return;
      F t = to_floats(load_whole(sums + v * kLanes) + missing[v]) * scale[v] + bias[v];
      if (r.residual) t = t + residual(r.residual + row * r.ldr + at, n);
      t = activated(r.activation, t);
      if (r.inverse_out_scale == 0.0f) {
        float* out = static_cast<float*>(r.out) + row * r.ldo + at;
        if (r.addend) t = t + load_part(r.addend + row * r.ldo + at, n);
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
  bool small = false;  // whether nothing is limited but by 255, and everything has room in 32 bits

  CodeRange(float inverse_scale, int32_t zero_code)
      : inverse(broadcast(inverse_scale)), lowest(broadcast(static_cast<float>(-zero_code))),
        highest(broadcast(static_cast<float>(255 - zero_code))), zero(zero_code), lowest_code(0) {}
  explicit CodeRange(const IntegerResult& r) : CodeRange(r.inverse_out_scale, r.out_zero) {
    const bool positive = r.activation == Activation::relu || r.activation == Activation::relu6;
    if (positive) lowest_code = zero, lowest = broadcast(0.0f);
    const float six = 6.0f * r.inverse_out_scale;
    if (r.activation == Activation::relu6) highest = smaller(highest, broadcast(six));
  }
};

#ifndef SATCHEL_STORES_CODE_ROWS
// Rows whose codes are stored together, of V vectors.
template <int V>
constexpr int kCodeRows = 1;

// Codes of R rows of V vectors of numbers.
template <int R, int V>
inline void store_code_rows(uint8_t* out, int64_t, const F* numbers, const CodeRange& range) {
  static_assert(R == 1);
  constexpr float kRound = 12582912.0f;
  SATCHEL_UNROLL
  for (int v = 0; v < V; ++v) {
    const F t = smaller(range.highest, larger(range.lowest, numbers[v] * range.inverse));
    const U code = to_bits(t + broadcast(kRound)) + static_cast<uint32_t>(range.zero);
    store_bytes(reinterpret_cast<int8_t*>(out) + v * kLanes, code);
  }
}
#endif

// What becomes of rows of T whole tiles.
template <int T, bool kFromZero, bool kResidual, bool kCodes, class Function>
struct RowFinish {
  static constexpr int V = T * kTileVectors;
  const IntegerResult& r;
  const BlockSums& block;
  Function function;
  CodeRange range;
  I missing[kFromZero ? V : 1];
  F scale[V], bias[V], residual_zero, residual_scale;
  int64_t row, output;

  RowFinish(const IntegerResult& result, const IntegerMatrix& w, int64_t tile, int64_t first,
            const BlockSums& sums, Function f)
      : r(result), block(sums), function(f), range(result),
        residual_zero(broadcast(static_cast<float>(result.residual_zero))),
        residual_scale(broadcast(result.residual_scale)), row(first), output(tile * kTileRows) {
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) {
      if constexpr (kFromZero) missing[v] = first_sums(r, w, output + v * kLanes);
      scale[v] = load(r.scale + output + v * kLanes);
      bias[v] = r.bias ? load(r.bias + output + v * kLanes) : broadcast(0.0f);
    }
    if constexpr (kCodes) range.small = r.activation != Activation::relu6 && largest_ratio() < 0x1p30f;
  }

  // How many steps the result may be at most, before the activation; not a number if it may be.
  float largest_ratio() const {
    const auto magnitude = [](F v) { return from_bits(to_bits(v) & 0x7fffffffu); };
    F most = broadcast(0.0f);
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) most = most + magnitude(scale[v]) * broadcast(0x1p31f) + magnitude(bias[v]);
    if constexpr (kResidual) most = most + magnitude(residual_scale) * broadcast(255.0f);
    return sum(most * range.inverse);
  }

  // R rows from row m of the block on.
  template <int R>
  __attribute__((always_inline)) inline void rows(int64_t m) const {
    F numbers[R * V];
    const int32_t* sums = block.sums + m * block.row_stride;
    const uint8_t* residual = kResidual ? r.residual + (row + m) * r.ldr + output : nullptr;
    SATCHEL_UNROLL
    for (int i = 0; i < R; ++i) {
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) {
        const int32_t* at = sums + i * block.row_stride + v / kTileVectors * block.tile_stride;
        I sum = load_whole(at + v % kTileVectors * kLanes);
        if constexpr (kFromZero) sum = sum + missing[v];
        F t = to_floats(sum) * scale[v] + bias[v];
        if constexpr (kResidual) {
          F code = load_codes(residual + i * r.ldr + v * kLanes);
          if (r.residual_zero != 0) code = code - residual_zero;
          t = t + code * residual_scale;
        }
        numbers[i * V + v] = function(t);
      }
    }
    const int64_t at = (row + m) * r.ldo + output;
    if constexpr (kCodes) {
      store_code_rows<R, V>(static_cast<uint8_t*>(r.out) + at, r.ldo, numbers, range);
    } else {
      SATCHEL_UNROLL
      for (int i = 0; i < R; ++i) {
        SATCHEL_UNROLL
        for (int v = 0; v < V; ++v) {
          const int64_t place = at + i * r.ldo + v * kLanes;
          F t = numbers[i * V + v];
          if (r.addend) t = t + load(r.addend + place);
          store(static_cast<float*>(r.out) + place, t);
        }
      }
    }
  }
};

template <int T, bool kFromZero, class Function>
inline void finish_whole(const IntegerResult& r, const IntegerMatrix& w, int64_t tile, int64_t row,
                         int64_t rows, const BlockSums& block, Function function) {
  const auto all = [&](const auto& finish) {
    constexpr int R = kCodeRows<T * kTileVectors>;
    const int64_t together = rows - rows % R;
    for (int64_t m = 0; m < together; m += R) finish.template rows<R>(m);
    for (int64_t m = together; m < rows; ++m) finish.template rows<1>(m);
  };
  if (r.inverse_out_scale == 0.0f) {
    r.residual ? all(RowFinish<T, kFromZero, true, false, Function>(r, w, tile, row, block, function))
               : all(RowFinish<T, kFromZero, false, false, Function>(r, w, tile, row, block, function));
  } else {
    r.residual ? all(RowFinish<T, kFromZero, true, true, Function>(r, w, tile, row, block, function))
               : all(RowFinish<T, kFromZero, false, true, Function>(r, w, tile, row, block, function));
  }
}

// What becomes of the sums of some rows and T tiles. kFromZero: they lack first_sums().
template <int T, bool kFromZero = true>
__attribute__((noinline)) void finish_rows(const IntegerResult& r, const IntegerMatrix& w,
                                           int64_t tile, int64_t row, int64_t rows,
                                           const BlockSums& block) {
  if ((tile + T) * kTileRows > w.rows) {
    if constexpr (T > 1) finish_rows<T - 1, kFromZero>(r, w, tile, row, rows, block);
    const TileFinish finish(r, w, tile + T - 1, kFromZero);
    const int32_t* sums = block.sums + (T - 1) * block.tile_stride;
    for (int64_t m = 0; m < rows; ++m) finish.row(row + m, sums + m * block.row_stride);
    return;
  }
  const auto finish = [&](auto function) {
    finish_whole<T, kFromZero>(r, w, tile, row, rows, block, function);
  };
  const bool codes = r.inverse_out_scale != 0.0f;
  switch (r.activation) {
    case Activation::none: return finish([](F x) { return x; });
    case Activation::hardswish: return finish([](F x) { return x * hardsigmoid_of(x); });
    case Activation::gelu: return finish([](F x) { return gelu_of(x); });
    case Activation::relu:
    case Activation::relu6:
      if (codes) return finish([](F x) { return x; });  // the range of codes limits as they do
      [[fallthrough]];
    default: return finish([&](F x) { return activated(r.activation, x); });
  }
}

}  // namespace
}  // namespace satchel
