// What integer layers make of their sums, for any lane width. Included after linear_float.inl.

namespace satchel {
namespace {

// What the activation's zero point takes off: zero times the sum of a row of weights. Kernels whose
// sums start with it have it for nothing; to others, whose sums start at zero, it is added at the
// end.
//
// The sums come from the file, and nobody has added up the codes again: sums that are not theirs
// wrap around, here and in add_whole(), and give wrong numbers, but defined ones.
//
// Kernels that multiply signed numbers take `shift` off each code, and have it back here.
inline I first_sums(const IntegerResult& r, const IntegerMatrix& w, int64_t output,
                    int32_t shift = 0) {
  return (I)((U)load_whole(w.sums + output) * static_cast<uint32_t>(shift - r.x_zero));
}

inline I add_whole(I a, I b) { return (I)((U)a + (U)b); }

// Sums of a block in memory: 16 of a row and tile lie together.
struct BlockSums {
  const int32_t* sums;
  int64_t row_stride, tile_stride;  // in sums
  bool small = false;               // see have_room
  bool from_zero = false;           // whether they lack first_sums()

  BlockSums from_tile(int64_t tile) const {
    return {sums + tile * tile_stride, row_stride, tile_stride, small, from_zero};
  }
};

// Whether results that become codes are limited by nothing but 255 and have room in 32 bits as
// steps, whatever the sums: those of the whole ones among some tiles.
inline bool have_room(const IntegerResult& r, const IntegerMatrix& w, int64_t tile, int64_t tiles) {
  if (r.inverse_out_scale == 0.0f || r.activation == Activation::relu6) return false;
  const auto magnitude = [](F v) { return from_bits(to_bits(v) & 0x7fffffffu); };
  const F largest_sum = broadcast(255.0f * 127.0f * 4.0f * static_cast<float>(w.steps));
  const int64_t whole = w.rows / kTileRows, after = tile + tiles < whole ? tile + tiles : whole;
  const F start = broadcast(
      r.residual ? 255.0f * (r.residual_scale < 0 ? -r.residual_scale : r.residual_scale) : 0.0f);
  for (int64_t output = tile * kTileRows; output < after * kTileRows; output += kLanes) {
    F most = start + magnitude(load(r.scale + output)) * largest_sum;
    if (r.bias) most = most + magnitude(load(r.bias + output));
    // Not so if it is not a number.
    if (!(sum(most * broadcast(r.inverse_out_scale)) < 0x1p30f)) return false;
  }
  return true;
}

// Whether codes are made of steps of the result: see IntegerResult.
inline bool is_in_steps(const IntegerResult& r) {
  const bool only_limits = r.activation == Activation::none || r.activation == Activation::relu ||
                           r.activation == Activation::relu6;
  return only_limits && r.inverse_out_scale != 0.0f;
}

// Scales and biases of N vectors of outputs as steps of the result; returns how many a step of the
// residual is.
template <int N>
inline F bring_to_steps(const IntegerResult& r, F* scale, F* bias) {
  const F inverse = broadcast(r.inverse_out_scale), step = broadcast(r.residual_scale) * inverse;
  const F zero = broadcast(static_cast<float>(r.residual_zero)) * step;
  SATCHEL_UNROLL
  for (int v = 0; v < N; ++v) {
    scale[v] = scale[v] * inverse;
    bias[v] = bias[v] * inverse;
    if (r.residual) bias[v] = bias[v] - zero;
  }
  return step;
}

// What is rounded to codes. relu and relu6 are limits too: a step is positive, so that it is the
// same to limit before and after dividing by it.
struct CodeRange {
  F inverse, lowest, highest;
  int32_t zero, lowest_code;
  bool small = false;  // see have_room

  CodeRange(float inverse_scale, int32_t zero_code)
      : inverse(broadcast(inverse_scale)),
        lowest(broadcast(static_cast<float>(-zero_code))),
        highest(broadcast(static_cast<float>(255 - zero_code))),
        zero(zero_code),
        lowest_code(0) {}
  explicit CodeRange(const IntegerResult& r) : CodeRange(r.inverse_out_scale, r.out_zero) {
    const bool positive = r.activation == Activation::relu || r.activation == Activation::relu6;
    if (positive) lowest_code = zero, lowest = broadcast(0.0f);
    const float six = 6.0f * r.inverse_out_scale;
    if (r.activation == Activation::relu6) highest = smaller(highest, broadcast(six));
  }
};

// What becomes of the sums of a tile's outputs, row by row.
struct TileFinish {
  const IntegerResult& r;
  int64_t output, there;  // the first output, and how many are left from it on
  I first[kTileVectors];
  F scale[kTileVectors], bias[kTileVectors], residual_step;
  bool in_steps;
  CodeRange range;

  TileFinish(const IntegerResult& result, const IntegerMatrix& w, int64_t tile, bool from_zero)
      : r(result),
        output(tile * kTileRows),
        there(w.rows - output),
        in_steps(is_in_steps(result)),
        range(result) {
    load_tile(r.scale + output, there, scale);
    load_bias(r.bias ? r.bias + output : nullptr, there, bias);
    for (int v = 0; v < kTileVectors; ++v)
      first[v] = from_zero ? first_sums(r, w, output + v * kLanes) : I{};
    if (in_steps) residual_step = bring_to_steps<kTileVectors>(r, scale, bias);
  }

  inline void row(int64_t row, const int32_t* sums) const {
    for (int v = 0; v < kTileVectors; ++v) {
      const int64_t n = there - v * kLanes, at = output + v * kLanes;
      if (n <= 0) return;
      const F sum = to_floats(add_whole(load_whole(sums + v * kLanes), first[v]));
      const uint8_t* from = r.residual ? r.residual + row * r.ldr + at : nullptr;
      if (in_steps) {
        F steps = fused(sum, scale[v], bias[v]);
        if (r.residual) steps = fused(residual(from, n), residual_step, steps);
        store_code(static_cast<uint8_t*>(r.out) + row * r.ldo + at, steps, n);
        continue;
      }
      F t = sum * scale[v] + bias[v];
      if (r.residual) {
        const F code = residual(from, n) - broadcast(static_cast<float>(r.residual_zero));
        t = t + code * broadcast(r.residual_scale);
      }
      t = activated(r.activation, t);
      if (r.inverse_out_scale == 0.0f) {
        float* out = static_cast<float*>(r.out) + row * r.ldo + at;
        if (r.addend) t = t + load_part(r.addend + row * r.ldo + at, n);
        n >= kLanes ? store(out, t) : store_n(out, t, n);
      } else {
        store_code(static_cast<uint8_t*>(r.out) + row * r.ldo + at, t * range.inverse, n);
      }
    }
  }

 private:
  F residual(const uint8_t* from, int64_t n) const {
    uint8_t codes[kLanes] = {};
    if (n < kLanes) std::memcpy(codes, from, static_cast<size_t>(n));
    return load_codes(n < kLanes ? codes : from);
  }

  // The limits are whole numbers, so it is the same to round first.
  void store_code(uint8_t* out, F steps, int64_t n) const {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    steps = smaller(range.highest, larger(range.lowest, steps));
    const U code = to_bits(steps + broadcast(kRound)) + static_cast<uint32_t>(r.out_zero);
    if (n >= kLanes) return store_bytes(reinterpret_cast<int8_t*>(out), code);
    int8_t codes[kLanes];
    store_bytes(codes, code);
    std::memcpy(out, codes, static_cast<size_t>(n));
  }
};

#ifndef SATCHEL_STORES_CODE_ROWS
// Rows whose codes are stored together, of V vectors.
template <int V>
constexpr int kCodeRows = 1;

// Codes of R rows of V vectors of numbers, or of steps of the result.
template <int R, int V, bool kInSteps = false>
inline void store_code_rows(uint8_t* out, int64_t, const F* numbers, const CodeRange& range) {
  static_assert(R == 1);
  constexpr float kRound = 12582912.0f;
  SATCHEL_UNROLL
  for (int v = 0; v < V; ++v) {
    const F t = smaller(range.highest,
                        larger(range.lowest, kInSteps ? numbers[v] : numbers[v] * range.inverse));
    const U code = to_bits(t + broadcast(kRound)) + static_cast<uint32_t>(range.zero);
    store_bytes(reinterpret_cast<int8_t*>(out) + v * kLanes, code);
  }
}
#endif

enum class Finished {
  numbers,
  codes,
  steps
};  // what is made of sums: steps are codes too, see is_in_steps

// What becomes of rows of T whole tiles.
template <int T, bool kResidual, Finished kFinished, class Function>
struct RowFinish {
  static constexpr int V = T * kTileVectors;
  // By value: a store of bytes could change anything that is read through a pointer.
  const IntegerResult r;
  const BlockSums block;
  Function function;
  CodeRange range;
  I first[V];
  F scale[V], bias[V], residual_zero, residual_scale;
  int64_t row, output;

  RowFinish(const IntegerResult& result, const IntegerMatrix& w, int64_t tile, int64_t first_row,
            const BlockSums& sums, Function f)
      : r(result),
        block(sums),
        function(f),
        range(result),
        residual_zero(broadcast(static_cast<float>(result.residual_zero))),
        residual_scale(broadcast(result.residual_scale)),
        row(first_row),
        output(tile * kTileRows) {
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) {
      if (adds_first()) first[v] = first_sums(r, w, output + v * kLanes);
      scale[v] = load(r.scale + output + v * kLanes);
      bias[v] = r.bias ? load(r.bias + output + v * kLanes) : broadcast(0.0f);
    }
    range.small = block.small;
    if constexpr (kFinished == Finished::steps) residual_scale = bring_to_steps<V>(r, scale, bias);
  }

  bool adds_first() const { return block.from_zero && r.x_zero != 0; }

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
        I whole = load_whole(at + v % kTileVectors * kLanes);
        if (adds_first()) whole = add_whole(whole, first[v]);
        const F sum = to_floats(whole);
        if constexpr (kFinished == Finished::steps) {
          F steps = fused(sum, scale[v], bias[v]);
          if constexpr (kResidual)
            steps = fused(load_codes(residual + i * r.ldr + v * kLanes), residual_scale, steps);
          numbers[i * V + v] = steps;
          continue;
        }
        F t = sum * scale[v] + bias[v];
        if constexpr (kResidual) {
          const F code = load_codes(residual + i * r.ldr + v * kLanes) - residual_zero;
          t = t + code * residual_scale;
        }
        numbers[i * V + v] = t;
      }
    }
    function.template apply<R * V>(numbers);
    const int64_t at = (row + m) * r.ldo + output;
    if constexpr (kFinished != Finished::numbers) {
      store_code_rows<R, V, kFinished == Finished::steps>(static_cast<uint8_t*>(r.out) + at, r.ldo,
                                                          numbers, range);
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

// What is done to N vectors of numbers: nothing, or a function of each. The usual ones are written
// out where they are needed; any other is called.
struct Nothing {
  template <int N>
  void apply(F*) const {}
};
template <class Function>
struct Each {
  template <int N>
  __attribute__((always_inline)) inline void apply(F* numbers) const {
    SATCHEL_UNROLL
    for (int i = 0; i < N; ++i) numbers[i] = Function::of(numbers[i]);
  }
};
struct Hardswish {
  static inline F of(F x) { return x * hardsigmoid_of(x); }
};
struct Gelu {
  static inline F of(F x) { return gelu_of(x); }
};
struct Called {
  Activation activation;
  template <int N>
  void apply(F* numbers) const {
    activate_vectors(activation, numbers, N);
  }
};

// Some rows of tiles, and their sums.
struct RowBlock {
  const IntegerResult& r;
  const IntegerMatrix& w;
  int64_t tile, row, rows;
  const BlockSums& sums;
};

template <int T, bool kResidual, Finished kFinished, class Function>
inline void finish_whole(const RowBlock& b, Function function) {
  const RowFinish<T, kResidual, kFinished, Function> finish(b.r, b.w, b.tile, b.row, b.sums,
                                                            function);
  constexpr int R = kCodeRows<T * kTileVectors>;
  const int64_t together = b.rows - b.rows % R;
  for (int64_t m = 0; m < together; m += R) finish.template rows<R>(m);
  for (int64_t m = together; m < b.rows; ++m) finish.template rows<1>(m);
}

// What becomes of the sums of some rows and T tiles.
template <int T>
__attribute__((noinline)) void finish_rows(const IntegerResult& r, const IntegerMatrix& w,
                                           int64_t tile, int64_t row, int64_t rows,
                                           const BlockSums& block) {
  if ((tile + T) * kTileRows > w.rows) {
    if constexpr (T > 2) {
      finish_rows<T / 2>(r, w, tile, row, rows, block);
      return finish_rows<T / 2>(r, w, tile + T / 2, row, rows, block.from_tile(T / 2));
    }
    if constexpr (T == 2) finish_rows<T - 1>(r, w, tile, row, rows, block);
    const TileFinish finish(r, w, tile + T - 1, block.from_zero);
    const int32_t* sums = block.sums + (T - 1) * block.tile_stride;
    for (int64_t m = 0; m < rows; ++m) finish.row(row + m, sums + m * block.row_stride);
    return;
  }
  const RowBlock whole{r, w, tile, row, rows, block};
  const bool numbers = r.inverse_out_scale == 0.0f;
  if (is_in_steps(r)) {
    return r.residual ? finish_whole<T, true, Finished::steps>(whole, Nothing{})
                      : finish_whole<T, false, Finished::steps>(whole, Nothing{});
  }
  if (r.activation == Activation::none) {  // what becomes codes was in steps
    return r.residual ? finish_whole<T, true, Finished::numbers>(whole, Nothing{})
                      : finish_whole<T, false, Finished::numbers>(whole, Nothing{});
  }
  const Called called{r.activation};
  if (r.residual) {
    return numbers ? finish_whole<T, true, Finished::numbers>(whole, called)
                   : finish_whole<T, true, Finished::codes>(whole, called);
  }
  if (numbers) return finish_whole<T, false, Finished::numbers>(whole, called);
  switch (r.activation) {
    case Activation::hardswish:
      return finish_whole<T, false, Finished::codes>(whole, Each<Hardswish>{});
    case Activation::gelu:
      return finish_whole<T, false, Finished::codes>(whole, Each<Gelu>{});
    default:
      return finish_whole<T, false, Finished::codes>(whole, called);
  }
}

}  // namespace
}  // namespace satchel
