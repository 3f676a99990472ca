// Depthwise convolution of codes with vpdpbusd: four taps of 16 channels at once.
// Included after depthwise.inl.

namespace satchel {
namespace {

// [4 taps][16 channels] to [16 channels][4 taps].
inline __m512i interleave(__m512i taps) {
  const __m512i gather =
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i turn = _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(gather, taps), turn);
}

template <int P>
inline void depthwise_pixels(const uint8_t* const* taps, int64_t count, const IntegerMatrix& w,
                             const IntegerResult& result, int64_t pixel, int64_t tile) {
  const int64_t first = tile * kTileRows, channels = w.rows - first;
  const __mmask16 there = channels >= kTileRows ? 0xffff : first_lanes(channels);
  const int8_t* weights = w.codes + tile * w.steps * 4 * kTileRows;
  Dots dots[P];
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) dots[p] = no_dots();
  for (int64_t t = 0; t < count; t += 4, weights += 64) {
    const __m512i step = _mm512_loadu_si512(weights);
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) {
      const uint8_t* const* four = taps + (pixel + p) * count + t;
      // Past the last tap the weights are zero, so that any codes will do.
      const auto load = [&](int64_t i) {
        return _mm_maskz_loadu_epi8(there, four[t + i < count ? i : 0] + first);
      };
      __m512i x = _mm512_castsi128_si512(load(0));
      x = _mm512_inserti32x4(x, load(1), 1);
      x = _mm512_inserti32x4(x, load(2), 2);
      x = _mm512_inserti32x4(x, load(3), 3);
      dots[p] = add_products(dots[p], interleave(x), step);
    }
  }
  alignas(64) int32_t sums[P][kTileRows];
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) _mm512_store_si512(sums[p], (__m512i)dots[p]);
  finish_rows<1>(result, w, tile, pixel, P, {sums[0], kTileRows, kTileRows});
}

void depthwise_i8(const uint8_t* const* taps, int64_t pixels, int64_t count,
                  const IntegerMatrix& w, const IntegerResult& result) {
  const int64_t tiles = (w.rows + kTileRows - 1) / kTileRows;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    int64_t p = 0;
    for (; p + kDepthwisePixels <= pixels; p += kDepthwisePixels) {
      depthwise_pixels<kDepthwisePixels>(taps, count, w, result, p, tile);
    }
    for (; p < pixels; ++p) depthwise_pixels<1>(taps, count, w, result, p, tile);
  }
}

}  // namespace
}  // namespace satchel
