// Depthwise convolution: where each window of a row of outputs looks.
#pragma once

#include "conv_panel.h"

namespace satchel {

// Scratch: a pixel that stands for everything outside of the image, and each thread's pointers.
struct DepthwiseLayout {
  int64_t row_taps;
  size_t outside, pointers, total;

  DepthwiseLayout(const ConvShape& s, size_t item, int threads)
      : row_taps(s.out_w * s.window.taps()),
        outside(static_cast<size_t>(round_up(s.channels * static_cast<int64_t>(item), 64))),
        pointers(static_cast<size_t>(round_up(row_taps * static_cast<int64_t>(sizeof(void*)), 64))),
        total(outside + pointers * static_cast<size_t>(threads)) {}
};

inline size_t depthwise_scratch(const NodeCall& call, const ConvShape& s, size_t item, int threads) {
  const auto taps = checked_product(static_cast<uint64_t>(s.out_w), static_cast<uint64_t>(s.window.taps()));
  require(taps && *taps <= kMaxBytes / 64, call, "there are too many windows in a row");
  return DepthwiseLayout(s, item, threads).total;
}

// Calls row(pointers, first pixel of the output) for every row of outputs, on all threads; pointers are
// [out_w][taps], each to the channels of a pixel.
template <typename T, typename Row>
void for_depthwise_rows(const ConvShape& s, const T* x, T fill, const Workspace& work, const Row& row) {
  const DepthwiseLayout layout(s, sizeof(T), work.pool.size());
  T* outside = reinterpret_cast<T*>(work.scratch);
  std::fill_n(outside, s.channels, fill);
  const Window& w = s.window;
  const int64_t rows = s.pixels / s.out_w, taps = w.taps();
  work.pool.parallel_for(rows, grain_for(rows, work.pool.size(), 1), [&](int64_t begin, int64_t end, int thread) {
    auto** pointers = reinterpret_cast<const T**>(work.scratch + layout.outside +
                                                  static_cast<size_t>(thread) * layout.pointers);
    for (int64_t r = begin; r < end; ++r) {
      const T* image = x + r / s.out_h * s.height * s.width * s.channels;
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t iy = r % s.out_h * w.stride_h - w.top + tap / w.kernel_w * w.dilation_h;
        const int64_t shift = tap % w.kernel_w * w.dilation_w - w.left;
        const bool inside = iy >= 0 && iy < s.height;
        for (int64_t ox = 0; ox < s.out_w; ++ox) {
          const int64_t ix = ox * w.stride_w + shift;
          pointers[ox * taps + tap] =
              inside && ix >= 0 && ix < s.width ? image + (iy * s.width + ix) * s.channels : outside;
        }
      }
      row(pointers, r * s.out_w);
    }
  });
}

}  // namespace satchel
