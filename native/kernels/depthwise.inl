// Depthwise convolution: each channel has a kernel of its own. For any lane width.
// Included after linear_i8.inl.

namespace satchel {
namespace {

constexpr int kDepthwisePixels = 4;  // that share the loads of weights

// P pixels and one tile of channels, of which `channels` are there.
template <int P, class Weight>
inline void depthwise_block(const float* const* taps, int64_t count, int64_t first,
                            int64_t channels, const Weight* weights, const float* bias,
                            Activation activation, float* out, int64_t ldo) {
  F acc[P][kTileVectors];
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) {
    SATCHEL_UNROLL
    for (int v = 0; v < kTileVectors; ++v) acc[p][v] = broadcast(0.0f);
  }
  for (int64_t t = 0; t < count; ++t, weights += kTileRows) {
    SATCHEL_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      const F weight = load_weight(weights + v * kLanes);
      const int64_t n = channels - v * kLanes;
      SATCHEL_UNROLL
      for (int p = 0; p < P; ++p) {
        const float* x = taps[p * count + t] + first + v * kLanes;
        const F value = n >= kLanes ? load(x) : n > 0 ? load_n(x, n) : broadcast(0.0f);
        acc[p][v] = fma(value, weight, acc[p][v]);
      }
    }
  }
  F offset[kTileVectors];
  load_bias(bias, channels, offset);
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) {
    F result[kTileVectors];
    SATCHEL_UNROLL
    for (int v = 0; v < kTileVectors; ++v) result[v] = activated(activation, acc[p][v] + offset[v]);
    store_tile(out + p * ldo, result, channels);
  }
}

template <class Weight>
void depthwise_float(const float* const* taps, int64_t pixels, int64_t count,
                     const PackedMatrix& w, const float* bias, Activation activation, float* out) {
  const Weight* weights = reinterpret_cast<const Weight*>(w.codes);
  for (int64_t first = 0; first < w.rows; first += kTileRows, weights += count * kTileRows) {
    const int64_t channels = w.rows - first;
    const float* offsets = bias ? bias + first : nullptr;
    int64_t p = 0;
    for (; p + kDepthwisePixels <= pixels; p += kDepthwisePixels) {
      depthwise_block<kDepthwisePixels>(taps + p * count, count, first, channels, weights, offsets,
                                        activation, out + p * w.rows + first, w.rows);
    }
    for (; p < pixels; ++p) {
      depthwise_block<1>(taps + p * count, count, first, channels, weights, offsets, activation,
                         out + p * w.rows + first, w.rows);
    }
  }
}

}  // namespace
}  // namespace satchel
