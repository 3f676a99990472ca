// Depthwise convolution of codes, for any lane width: products of floats, which are exact because
// the sums of up to kMostDepthwiseTaps products stay below 2^24. Included after depthwise.inl.

namespace satchel {
namespace {

constexpr int64_t kPixelsAtOnce = 32;  // whose sums are finished together

void depthwise_i8(const DepthwisePixels<uint8_t>& s, const IntegerMatrix& w,
                  const IntegerResult& result) {
  const int64_t taps = s.kernel_h * s.kernel_w, tiles = (w.rows + kTileRows - 1) / kTileRows;
  float weights[kMostDepthwiseTaps * kTileRows];
  alignas(64) int32_t sums[kPixelsAtOnce * kTileRows];
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int8_t* codes = w.codes + tile * w.steps * 4 * kTileRows;
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t c = 0; c < kTileRows; ++c) {
        weights[t * kTileRows + c] = codes[(t / 4 * kTileRows + c) * 4 + t % 4];
      }
    }
    const int64_t first = tile * kTileRows, channels = w.rows - first;
    const auto add_pixel = [&](const uint8_t* const* columns, int32_t* out) {
      F acc[kTileVectors];
      for (int v = 0; v < kTileVectors; ++v) acc[v] = broadcast(0.0f);
      const float* weight = weights;
      for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
        const uint8_t* const* at = columns + ky;
        for (int64_t kx = 0; kx < s.kernel_w; ++kx, at += s.dilation * s.kernel_h) {
          const uint8_t* x = *at + first;
          uint8_t rest[kTileRows];
          if (channels < kTileRows) {
            std::memcpy(rest, x, static_cast<size_t>(channels));
            x = rest;
          }
          SATCHEL_UNROLL
          for (int v = 0; v < kTileVectors; ++v, weight += kLanes) {
            if (channels > v * kLanes)
              acc[v] = fma(load_codes(x + v * kLanes), load(weight), acc[v]);
          }
        }
      }
      for (int v = 0; v < kTileVectors; ++v) {
        const I whole = add_whole(__builtin_convertvector(acc[v], I),
                                  first_sums(result, w, first + v * kLanes));
        std::memcpy(out + v * kLanes, &whole, sizeof whole);
      }
    };
    const bool small = have_room(result, w, tile, 1);
    for (int64_t row = 0; row < s.rows; ++row) {
      const uint8_t* const* columns = s.columns + row * s.row_columns * s.kernel_h;
      for (int64_t p = 0; p < s.row_pixels; p += kPixelsAtOnce) {
        const int64_t left = s.row_pixels - p, count = left < kPixelsAtOnce ? left : kPixelsAtOnce;
        for (int64_t i = 0; i < count; ++i) {
          add_pixel(columns + (p + i) * s.stride * s.kernel_h, sums + i * kTileRows);
        }
        finish_rows<1>(result, w, tile, row * s.row_pixels + p, count,
                       {sums, kTileRows, kTileRows, small});
      }
    }
  }
}

}  // namespace
}  // namespace satchel
