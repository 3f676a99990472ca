// Depthwise convolution of codes, for any lane width: products of floats, which are exact because
// the sums of up to kMostDepthwiseTaps products stay below 2^24. Included after depthwise.inl.

namespace satchel {
namespace {

void depthwise_i8(const uint8_t* const* taps, int64_t pixels, int64_t count,
                  const IntegerMatrix& w, const IntegerResult& result) {
  float weights[kMostDepthwiseTaps * kTileRows];
  const int64_t tiles = (w.rows + kTileRows - 1) / kTileRows;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int8_t* codes = w.codes + tile * w.steps * 4 * kTileRows;
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t c = 0; c < kTileRows; ++c) {
        weights[t * kTileRows + c] = codes[(t / 4 * kTileRows + c) * 4 + t % 4];
      }
    }
    const int64_t first = tile * kTileRows, channels = w.rows - first;
    for (int64_t p = 0; p < pixels; ++p) {
      F acc[kTileVectors];
      for (int v = 0; v < kTileVectors; ++v) acc[v] = broadcast(0.0f);
      for (int64_t t = 0; t < count; ++t) {
        const uint8_t* x = taps[p * count + t] + first;
        uint8_t rest[kTileRows];
        if (channels < kTileRows) {
          std::memcpy(rest, x, static_cast<size_t>(channels));
          x = rest;
        }
        SATCHEL_UNROLL
        for (int v = 0; v < kTileVectors; ++v) {
          if (channels <= v * kLanes) break;
          acc[v] = fma(load_codes(x + v * kLanes), load(weights + t * kTileRows + v * kLanes), acc[v]);
        }
      }
      I sums[kTileVectors];
      for (int v = 0; v < kTileVectors; ++v) sums[v] = __builtin_convertvector(acc[v], I);
      int32_t whole[kTileRows];
      std::memcpy(whole, sums, sizeof whole);
      finish_rows<1>(result, w, tile, p, 1, {whole, kTileRows, kTileRows});
    }
  }
}

}  // namespace
}  // namespace satchel
