// Depthwise convolution: each channel has a kernel of its own. For any lane width.
// Included after linear_i8.inl.

namespace satchel {
namespace {

constexpr int kDepthwisePixels = 4;  // that share the loads of weights

// P pixels of a row, whose columns begin at `columns`, and one tile of channels, of which
// `channels` are there.
template <int P, class Weight>
inline void depthwise_block(const DepthwisePixels<float>& s, const float* const* columns,
                            int64_t first, int64_t channels, const Weight* weights,
                            const float* bias, Activation activation, float* out, int64_t ldo) {
  F acc[P][kTileVectors];
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) {
    SATCHEL_UNROLL
    for (int v = 0; v < kTileVectors; ++v) acc[p][v] = broadcast(0.0f);
  }
  const int64_t next = s.stride * s.kernel_h;  // pointers from one pixel to the next
  for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
    const float* const* at = columns + ky;
    for (int64_t kx = 0; kx < s.kernel_w;
         ++kx, at += s.dilation * s.kernel_h, weights += kTileRows) {
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
  F offset[kTileVectors], results[P * kTileVectors];
  load_bias(bias, channels, offset);
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) {
    SATCHEL_UNROLL
    for (int v = 0; v < kTileVectors; ++v) results[p * kTileVectors + v] = acc[p][v] + offset[v];
  }
  if (activation != Activation::none) activate_vectors(activation, results, P * kTileVectors);
  for (int p = 0; p < P; ++p) store_tile(out + p * ldo, results + p * kTileVectors, channels);
}

constexpr int kRunPixels = 7;  // sides of images are often multiples of it

// kRunPixels pixels and a vector of channels: each column is loaded once for all windows that see
// it.
template <int KW, int S, class Weight>
inline void depthwise_run(const DepthwisePixels<float>& s, const float* const* columns,
                          int64_t channel, const Weight* weights, F offset, Activation activation,
                          float* out, int64_t ldo) {
  F acc[kRunPixels];
  SATCHEL_UNROLL
  for (int p = 0; p < kRunPixels; ++p) acc[p] = broadcast(0.0f);
  for (int64_t ky = 0; ky < s.kernel_h; ++ky, weights += KW * kTileRows) {
    F weight[KW];
    SATCHEL_UNROLL
    for (int kx = 0; kx < KW; ++kx) weight[kx] = load_weight(weights + kx * kTileRows);
    const float* const* at = columns + ky;
    SATCHEL_UNROLL
    for (int c = 0; c < (kRunPixels - 1) * S + KW; ++c) {
      const F x = load(at[c * s.kernel_h] + channel);
      SATCHEL_UNROLL
      for (int p = 0; p < kRunPixels; ++p) {
        const int kx = c - p * S;
        if (kx >= 0 && kx < KW) acc[p] = fma(x, weight[kx], acc[p]);
      }
    }
  }
  F results[kRunPixels];
  SATCHEL_UNROLL
  for (int p = 0; p < kRunPixels; ++p) results[p] = acc[p] + offset;
  if (activation != Activation::none) activate_vectors(activation, results, kRunPixels);
  SATCHEL_UNROLL
  for (int p = 0; p < kRunPixels; ++p) store(out + p * ldo, results[p]);
}

// As many runs of a row's pixels as there are, for a whole tile of channels; returns the pixels
// done.
template <int KW, int S, class Weight>
int64_t depthwise_runs(const DepthwisePixels<float>& s, const float* const* columns, int64_t first,
                       const Weight* weights, const float* bias, Activation activation, float* out,
                       int64_t ldo) {
  F offset[kTileVectors];
  load_bias(bias, kTileRows, offset);
  int64_t p = 0;
  for (; p + kRunPixels <= s.row_pixels; p += kRunPixels) {
    for (int v = 0; v < kTileVectors; ++v) {
      depthwise_run<KW, S>(s, columns + p * S * s.kernel_h, first + v * kLanes,
                           weights + v * kLanes, offset[v], activation, out + p * ldo + v * kLanes,
                           ldo);
    }
  }
  return p;
}

template <class Weight>
void depthwise_float(const DepthwisePixels<float>& s, const PackedMatrix& w, const float* bias,
                     Activation activation, float* out) {
  const Weight* weights = reinterpret_cast<const Weight*>(w.codes);
  const int64_t next = s.stride * s.kernel_h;
  auto* runs = s.dilation != 1 || s.stride > 2    ? nullptr
               : s.kernel_w == 3 && s.stride == 1 ? depthwise_runs<3, 1, Weight>
               : s.kernel_w == 3                  ? depthwise_runs<3, 2, Weight>
               : s.kernel_w == 5 && s.stride == 1 ? depthwise_runs<5, 1, Weight>
               : s.kernel_w == 5                  ? depthwise_runs<5, 2, Weight>
                                                  : nullptr;
  for (int64_t first = 0; first < w.rows; first += kTileRows, weights += w.cols * kTileRows) {
    const int64_t channels = w.rows - first;
    const float* offsets = bias ? bias + first : nullptr;
    for (int64_t row = 0; row < s.rows; ++row) {
      const float* const* columns = s.columns + row * s.row_columns * s.kernel_h;
      float* to = out + row * s.row_pixels * w.rows + first;
      int64_t p = 0;
      if (runs && channels >= kTileRows) {
        p = runs(s, columns, first, weights, offsets, activation, to, w.rows);
      }
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
