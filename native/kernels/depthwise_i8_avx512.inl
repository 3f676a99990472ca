// Depthwise convolution of codes with vpdpbusd: four taps of 16 channels at once, one below the
// other. Each column that some pixels see is put in order once, and serves all windows it is in.
// Included after depthwise.inl.

namespace satchel {
namespace {

constexpr int64_t kOrderedColumns = 256;  // groups of four taps, 64 bytes each
constexpr int64_t kPixelsAtOnce = 32;     // at most, whose sums are finished together

// [4 taps][16 channels] to [16 channels][4 taps].
inline __m512i interleave(__m512i taps) {
  const __m512i gather = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i turn =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(gather, taps), turn);
}

// The taps of a column in groups of four; what the last group lacks is zero.
__attribute__((always_inline)) inline void order_column(const uint8_t* const* column, int64_t taps,
                                                        int64_t first, __mmask16 there,
                                                        uint8_t* out) {
  const auto load = [&](int64_t i) { return _mm_maskz_loadu_epi8(there, column[i] + first); };
  int64_t t = 0;
  for (; t + 1 < taps; t += 4, out += 64) {
    __m512i x = _mm512_castsi128_si512(load(t));
    x = _mm512_inserti32x4(x, load(t + 1), 1);
    x = _mm512_inserti32x4(x, t + 2 < taps ? load(t + 2) : _mm_setzero_si128(), 2);
    x = _mm512_inserti32x4(x, t + 3 < taps ? load(t + 3) : _mm_setzero_si128(), 3);
    _mm512_store_si512(out, interleave(x));
  }
  if (t < taps) _mm512_store_si512(out, _mm512_cvtepu8_epi32(load(t)));
}

// The same order for the weights of a tile, whose taps follow each other row by row of the kernel.
inline void order_weights(const int8_t* codes, int64_t kernel_h, int64_t kernel_w, int8_t* out) {
  const __m512i byte = _mm512_set1_epi32(255);
  for (int64_t kx = 0; kx < kernel_w; ++kx) {
    for (int64_t ky = 0; ky < kernel_h; ky += 4, out += 64) {
      __m512i group = _mm512_setzero_si512();
      for (int64_t j = 0; j < 4 && ky + j < kernel_h; ++j) {
        const int64_t t = (ky + j) * kernel_w + kx;
        const __m512i step = _mm512_loadu_si512(codes + t / 4 * 64);
        const __m512i tap =
            _mm512_and_si512(_mm512_srl_epi32(step, _mm_cvtsi64_si128(t % 4 * 8)), byte);
        group = _mm512_or_si512(group, _mm512_sll_epi32(tap, _mm_cvtsi64_si128(j * 8)));
      }
      _mm512_store_si512(out, group);
    }
  }
}

// The sums of P pixels; `groups` of a pixel's columns lie one after the other, and those of the
// next pixel `step` bytes further.
template <int P>
inline void depthwise_pixels(const uint8_t* ordered, int64_t step, const int8_t* weights,
                             int64_t groups, I first, int32_t* sums) {
  Dots dots[P];
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) dots[p] = dots_from(first);
  for (int64_t g = 0; g < groups; ++g, ordered += 64, weights += 64) {
    const WeightStep weight = load_weights(weights);
    SATCHEL_UNROLL
    for (int p = 0; p < P; ++p) {
      dots[p] = add_products(dots[p], _mm512_load_si512(ordered + p * step), weight);
    }
  }
  SATCHEL_UNROLL
  for (int p = 0; p < P; ++p) _mm512_store_si512(sums + p * kTileRows, (__m512i)dots[p]);
}

template <int P>
inline int64_t depthwise_some(const uint8_t* ordered, int64_t step, const int8_t* weights,
                              int64_t groups, I first, int64_t p, int64_t pixels, int32_t* sums) {
  for (; p + P <= pixels; p += P) {
    depthwise_pixels<P>(ordered + p * step, step, weights, groups, first, sums + p * kTileRows);
  }
  return p;
}

void depthwise_i8(const DepthwisePixels<uint8_t>& s, const IntegerMatrix& w,
                  const IntegerResult& result) {
  const int64_t kernel_h = s.kernel_h, kernel_w = s.kernel_w, depth = (kernel_h + 3) / 4;
  // Windows share columns, or each has its own where they lie apart.
  const bool shared = s.dilation == 1 && s.stride <= kernel_w;
  const int64_t step = shared ? s.stride : kernel_w;
  const int64_t fitting = (kOrderedColumns / depth - kernel_w) / step + 1;
  const int64_t at_once = fitting < kPixelsAtOnce ? fitting : kPixelsAtOnce;
  alignas(64) uint8_t ordered[kOrderedColumns * 64];
  alignas(64) int8_t weights[kOrderedColumns * 64];
  alignas(64) int32_t sums[kPixelsAtOnce * kTileRows];
  const int64_t tiles = (w.rows + kTileRows - 1) / kTileRows;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = tile * kTileRows, channels = w.rows - first;
    const __mmask16 there = channels >= kTileRows ? 0xffff : first_lanes(channels);
    const I start = first_sums(result, w, first);
    const bool small = have_room(result, w, tile, 1);
    order_weights(w.codes + tile * w.steps * 4 * kTileRows, kernel_h, kernel_w, weights);
    for (int64_t row = 0; row < s.rows; ++row) {
      for (int64_t p = 0; p < s.row_pixels; p += at_once) {
        const int64_t left = s.row_pixels - p, pixels = left < at_once ? left : at_once;
        const uint8_t* const* columns = s.columns + (row * s.row_columns + p * s.stride) * kernel_h;
        const int64_t count = (pixels - 1) * step + kernel_w;
        // Constants let the compiler write the usual heights out.
        if (shared && kernel_h == 3) {
          for (int64_t c = 0; c < count; ++c) {
            order_column(columns + c * 3, 3, first, there, ordered + c * 64);
          }
        } else if (shared && kernel_h == 5) {
          for (int64_t c = 0; c < count; ++c) {
            order_column(columns + c * 5, 5, first, there, ordered + c * 128);
          }
        } else {
          for (int64_t c = 0; c < count; ++c) {
            const int64_t from = shared ? c : c / kernel_w * s.stride + c % kernel_w * s.dilation;
            order_column(columns + from * kernel_h, kernel_h, first, there,
                         ordered + c * depth * 64);
          }
        }
        const int64_t bytes = step * depth * 64, groups = kernel_w * depth;
        int64_t done = depthwise_some<8>(ordered, bytes, weights, groups, start, 0, pixels, sums);
        done = depthwise_some<4>(ordered, bytes, weights, groups, start, done, pixels, sums);
        depthwise_some<1>(ordered, bytes, weights, groups, start, done, pixels, sums);
        finish_rows<1>(result, w, tile, row * s.row_pixels + p, pixels,
                       {sums, kTileRows, kTileRows, small});
      }
    }
  }
}

}  // namespace
}  // namespace satchel
