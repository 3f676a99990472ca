// Convolutions whose windows are read in the image itself: rows of pixels are as long as the kernels' blocks, and a
// kernel's row is whole steps of four columns. Where there is padding (no more than the image itself), a thread
// copies the rows that some rows of pixels see with the padding around them: once, and not for each window.
#pragma once

#include "conv_panel.h"

namespace satchel {

struct Windowed {
  static constexpr int64_t kFewestPixels = 12, kNearBytes = 1 << 17;
  const ConvShape& s;
  bool padded;
  int64_t width, piece_rows, pieces;  // bytes in a row of the image; rows of pixels in a piece; pieces of an image

  Windowed(const ConvShape& shape, int threads)
      : s(shape), padded(s.window.top > 0 || s.window.bottom > 0 || s.window.left > 0 || s.window.right > 0),
        width((padded ? (s.out_w - 1) * s.window.stride_w + s.window.kernel_w : s.width) * s.channels) {
    const int64_t fitting = std::clamp<int64_t>(kNearBytes / width / s.window.stride_h, 1, s.out_h);
    pieces = std::min(s.out_h, round_up((s.out_h + fitting - 1) / fitting, threads));
    piece_rows = (s.out_h + pieces - 1) / pieces;
  }
  static bool fits(const ConvShape& s) {
    return !s.transposed && s.groups == 1 && s.window.dilation_w == 1 && s.out_w >= kFewestPixels &&
           s.window.kernel_w * s.channels % 4 == 0 && s.window.top + s.window.bottom <= s.height &&
           s.window.left + s.window.right <= s.width;
  }
  int64_t rows_seen(int64_t rows) const { return (rows - 1) * s.window.stride_h + s.window.reach_h(); }
  size_t bytes() const { return padded ? static_cast<size_t>(rows_seen(piece_rows) * width) : 0; }

  // What rows [begin, end) of an image's pixels see.
  CodeWindows windows(const uint8_t* image, int64_t begin, int64_t end, uint8_t fill, uint8_t* scratch) const {
    const Window& w = s.window;
    const uint8_t* first = image + begin * w.stride_h * width;
    if (padded) {
      const int64_t left = w.left * s.channels, inside = std::min(width - left, s.width * s.channels);
      for (int64_t row = 0; row < rows_seen(end - begin); ++row) {
        const int64_t y = begin * w.stride_h - w.top + row;
        uint8_t* to = scratch + row * width;
        if (y < 0 || y >= s.height || inside <= 0) {
          std::memset(to, fill, static_cast<size_t>(width));
          continue;
        }
        std::memset(to, fill, static_cast<size_t>(left));
        std::memcpy(to + left, image + y * s.width * s.channels, static_cast<size_t>(inside));
        std::memset(to + left + inside, fill, static_cast<size_t>(width - left - inside));
      }
      first = scratch;
    }
    return {first, end - begin, s.out_w, w.stride_h * width, w.stride_w * s.channels, w.kernel_h,
            w.dilation_h * width};
  }
};

}  // namespace satchel
