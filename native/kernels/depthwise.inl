// Depthwise convolution: each channel has a kernel of its own. For any lane width.
// Included after linear_i8.inl.

namespace satchel {
namespace {

constexpr int kDepthwisePixels = 4;  // that share the loads of weights

// P pixels of a row, whose columns begin at `columns`, and one tile of channels, of which `channels`
// are there.
template <int P, class Weight>
inline void depthwise_block(const DepthwisePixels<float>& s, const float* const* columns, int64_t first,
                            int64_t channels, const Weight* weights, const float* bias,
                            Activation activation, float* out, int64_t ldo) {
  F acc[P][kTileVectors];
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) {
    SATCHEL_UNROLL
    for (int v = 0; v < kTileVectors; ++v) acc[p][v] = broadcast(0.0f);
  }
  const int64_t next = s.stride * s.kernel_h;  // pointers from one pixel to the next
  for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
    const float* const* at = columns + ky;
    for (int64_t kx = 0; kx < s.kernel_w; ++kx, at += s.dilation * s.kernel_h, weights += kTileRows) {
      SATCHEL_UNROLL
      for (int v = 0; v < kTileVectors; ++v) {
        const F weight = load_weight(weights + v * kLanes);
        const int64_t n = channels - v * kLanes;
        SATCHEL_UNROLL
        for (int p = 0; p < P; ++p) {
          const float* x = at[p * next] + first + v * kLanes;
          const F value = n >= kLanes ? load(x) : n > 0 ? load_n(x, n) : broadcast(0.0f);
          acc[p][v] = fma(value, weight, acc[p][v]);
        }
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
void depthwise_float(const DepthwisePixels<float>& s, const PackedMatrix& w, const float* bias,
                     Activation activation, float* out) {
  const Weight* weights = reinterpret_cast<const Weight*>(w.codes);
  const int64_t next = s.stride * s.kernel_h;
  for (int64_t first = 0; first < w.rows; first += kTileRows, weights += w.cols * kTileRows) {
    const int64_t channels = w.rows - first;
    const float* offsets = bias ? bias + first : nullptr;
    for (int64_t row = 0; row < s.rows; ++row) {
      const float* const* columns = s.columns + row * s.row_columns * s.kernel_h;
      float* to = out + row * s.row_pixels * w.rows + first;
      int64_t p = 0;
      for (; p + kDepthwisePixels <= s.row_pixels; p += kDepthwisePixels) {
        depthwise_block<kDepthwisePixels>(s, columns + p * next, first, channels, weights, offsets,
                                          activation, to + p * w.rows, w.rows);
      }
      for (; p < s.row_pixels; ++p) {
        depthwise_block<1>(s, columns + p * next, first, channels, weights, offsets, activation,
                           to + p * w.rows, w.rows);
      }
    }
  }
}

}  // namespace
}  // namespace satchel
