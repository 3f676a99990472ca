// Convolutions whose windows are read in the image itself, where a kernel's row is whole steps of
// four columns. Where there is padding (no more than the image itself), a thread copies the rows
// that some rows of pixels see with the padding around them: once, and not for each window.
#pragma once

#include "conv_panel.h"

namespace satchel {

struct Windowed {
  static constexpr int64_t kNearBytes = 1 << 17, kFewestRows = 7;
  const ConvShape& s;
  bool padded;
  int64_t width, piece_rows,
      pieces;  // bytes in a row of the image; rows of pixels in a piece; pieces of an image

  // Pieces for so many threads, or one where they share out the weight.
  Windowed(const ConvShape& shape, int threads, bool share_weight)
      : s(shape),
        padded(s.window.top > 0 || s.window.bottom > 0 || s.window.left > 0 || s.window.right > 0),
        width((padded ? (s.out_w - 1) * s.window.stride_w + s.window.kernel_w : s.width) *
              s.channels) {
    if (share_weight) {
      pieces = 1, piece_rows = s.out_h;
      return;
    }
    const int64_t near = std::max<int64_t>(kNearBytes / width / s.window.stride_h, 1);
    // Some pieces for each thread, so that one can help another, but a piece has rows of the image
    // that its neighbours see too.
    const int64_t fitting = std::min(near, std::max<int64_t>(kFewestRows, s.out_h / (4 * threads)));
    pieces = std::min(s.out_h, round_up((s.out_h + fitting - 1) / fitting, threads));
    piece_rows = (s.out_h + pieces - 1) / pieces;
  }
  static bool fits(const ConvShape& s) {
    return !s.transposed && s.groups == 1 && s.window.dilation_w == 1 &&
           s.window.kernel_w * s.channels % 4 == 0 && s.window.top + s.window.bottom <= s.height &&
           s.window.left + s.window.right <= s.width;
  }
  static bool suits(const ConvShape& s, const KernelTable& kernels) {
    const Window& w = s.window;
    if (!fits(s) || (w.kernel_h > 1 && w.kernel_w * s.channels % kernels.window_columns != 0))
      return false;
    const int64_t apart = s.out_w - 1 + w.kernel_w;
    const bool together =
        w.stride_h == 1 && w.stride_w == 1 && apart + s.out_w <= kernels.windows_together;
    return s.out_w >= kernels.window_pixels || together;
  }
  // Whether the weight is larger than what else a layer of codes reads and writes.
  static bool has_large_weight(const ConvShape& s) {
    const int64_t images = s.pixels / s.out_h / s.out_w;
    return s.outputs * s.group_cols() >
           s.pixels * s.outputs + images * s.height * s.width * s.channels;
  }
  int64_t rows_seen(int64_t rows) const {
    return (rows - 1) * s.window.stride_h + s.window.reach_h();
  }
  size_t bytes() const { return padded ? static_cast<size_t>(rows_seen(piece_rows) * width) : 0; }

  // What rows [begin, end) of an image's pixels see, copied where there is padding.
  CodeWindows windows(const uint8_t* image, int64_t begin, int64_t end, uint8_t fill,
                      uint8_t* scratch) const {
    if (padded) copy(image, begin, end, fill, scratch);
    return placed(image, begin, end, scratch);
  }
  // The same where `scratch` has the copy.
  CodeWindows placed(const uint8_t* image, int64_t begin, int64_t end,
                     const uint8_t* scratch) const {
    const Window& w = s.window;
    return {padded ? scratch : image + begin * w.stride_h * width,
            end - begin,
            s.out_w,
            w.stride_h * width,
            w.stride_w * s.channels,
            w.kernel_h,
            w.dilation_h * width};
  }

 private:
  void copy(const uint8_t* image, int64_t begin, int64_t end, uint8_t fill,
            uint8_t* scratch) const {
    const Window& w = s.window;
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
  }
};

}  // namespace satchel
