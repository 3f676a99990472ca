// Depthwise convolution: where the windows of some rows of outputs look.
#pragma once

#include "conv_panel.h"

namespace satchel {

// Columns of a padded row of the image that a row of outputs sees.
inline int64_t seen_columns(const ConvShape& s) {
  return (s.out_w - 1) * s.window.stride_w + s.window.reach_w();
}

// Scratch: a pixel that stands for everything outside of the image, and each thread's pointers.
struct DepthwiseLayout {
  int64_t rows;  // of outputs in a piece
  size_t outside, pointers, total;

  DepthwiseLayout(const ConvShape& s, size_t item, int threads) {
    const int64_t all = s.pixels / s.out_w, row_pointers = seen_columns(s) * s.window.kernel_h;
    const double products =
        static_cast<double>(s.pixels) * static_cast<double>(s.channels * s.window.taps());
    const int64_t share =
        stays_on_one_thread(s.pixels, products) ? all : grain_for(all, threads, 1);
    // The weights are prepared for a piece, so that it should have some rows; their pointers stay
    // in the cache.
    rows = std::max<int64_t>(1, std::min(share, kMostPointers / row_pointers));
    outside = static_cast<size_t>(round_up(s.channels * static_cast<int64_t>(item), 64));
    pointers = static_cast<size_t>(
        round_up(rows * row_pointers * static_cast<int64_t>(sizeof(void*)), 64));
    total = outside + pointers * static_cast<size_t>(threads);
  }

 private:
  static constexpr int64_t kMostPointers = 4096;
};

inline size_t depthwise_scratch(const NodeCall& call, const ConvShape& s, size_t item,
                                int threads) {
  const auto pointers = checked_product(static_cast<uint64_t>(seen_columns(s)),
                                        static_cast<uint64_t>(s.window.kernel_h));
  require(pointers && *pointers <= kMaxBytes / 64, call, "there are too many windows in a row");
  return DepthwiseLayout(s, item, threads).total;
}

// Calls some(columns, first pixel of the output) for some rows of outputs at a time, on all
// threads.
template <typename T, typename Some>
void for_depthwise_rows(const ConvShape& s, const T* x, T fill, const Workspace& work,
                        const Some& some) {
  const DepthwiseLayout layout(s, sizeof(T), work.pool.size());
  T* outside = reinterpret_cast<T*>(work.scratch);
  std::fill_n(outside, s.channels, fill);
  const Window& w = s.window;
  const int64_t rows = s.pixels / s.out_w, columns = seen_columns(s);
  const auto some_rows = [&](int64_t first, int64_t last, int thread) {
    auto** pointers = reinterpret_cast<const T**>(work.scratch + layout.outside +
                                                  static_cast<size_t>(thread) * layout.pointers);
    const T** at = pointers;
    for (int64_t r = first; r < last; ++r) {
      const T* image = x + r / s.out_h * s.height * s.width * s.channels;
      const int64_t top = r % s.out_h * w.stride_h - w.top;
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t ix = column - w.left;
        for (int64_t ky = 0; ky < w.kernel_h; ++ky) {
          const int64_t iy = top + ky * w.dilation_h;
          const bool inside = iy >= 0 && iy < s.height && ix >= 0 && ix < s.width;
          *at++ = inside ? image + (iy * s.width + ix) * s.channels : outside;
        }
      }
    }
    some(DepthwisePixels<T>{pointers, last - first, s.out_w, columns, w.kernel_h, w.kernel_w,
                            w.stride_w, w.dilation_w},
         first * s.out_w);
  };
  work.pool.parallel_for(rows, layout.rows, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t row = begin; row < end; row += layout.rows)
      some_rows(row, std::min(row + layout.rows, end), thread);
  });
}

}  // namespace satchel
