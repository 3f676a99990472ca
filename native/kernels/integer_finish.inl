// What integer layers make of their sums, for any lane width. Included after linear_float.inl.

namespace satchel {
namespace {

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

  inline void row(int64_t row, const I* sums) const {
    for (int v = 0; v < kTileVectors; ++v) {
      const int64_t n = there - v * kLanes, at = output + v * kLanes;
      if (n <= 0) return;
      F t = to_floats(sums[v] - correction[v]) * scale[v] + bias[v];
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

}  // namespace
}  // namespace satchel
