// Convolutions as products of matrices. What the windows of some pixels see is copied into a panel
// [pixels][kernel, channels] that stays in the cache, and is multiplied with the weight as a linear
// layer's rows are. A kernel of one pixel needs no panel: its rows are the image itself.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu_op.h"
#include "window.h"

namespace satchel {

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

struct ConvShape {
  Window window;
  bool transposed;
  int64_t height, width, channels, out_h, out_w, outputs, pixels, groups;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  int64_t group_cols() const { return window.taps() * group_channels(); }
  bool is_depthwise() const {
    return !transposed && groups > 1 && groups == channels && groups == outputs;
  }
  bool is_plain() const {
    return groups == 1 && window.taps() == 1 && window.stride_h == 1 && window.stride_w == 1 &&
           window.top == 0 && window.bottom == 0 && window.left == 0 && window.right == 0;
  }
  bool groups_fill_tiles() const { return groups == 1 || group_outputs() % kTileRows == 0; }
  // Outputs in the tiles of a group: up to two tiles more than it has, shared with its neighbours.
  int64_t most_group_tile_rows() const { return round_up(group_outputs(), kTileRows) + kTileRows; }
};

// Where check_layer leaves the number of groups in the params.
inline constexpr size_t kGroups = kAfterWindow;

inline ConvShape conv_shape(const NodeCall& call, bool transposed = false) {
  const Tensor &x = call.in(0), &y = *call.output;
  return {window_of(call), transposed, x.shape[1], x.shape[2],      x.shape[3],
          y.shape[1],      y.shape[2], y.shape[3], y.product(0, 3), call.params.integer[kGroups]};
}

// Requires images x and y and a weight that fits the kernel (from check_window) and the groups.
void check_conv_weight(NodeCall& call);

// Rows of a panel with rows of `bytes`, so that it stays in the cache and every thread has some.
int64_t panel_rows(int64_t pixels, int64_t bytes, int threads);

// Where place k of a kernel looks for the output at `o`: a row or column of the image, or -1.
inline int64_t tap_source(bool transposed, int64_t o, int64_t k, int64_t stride, int64_t before,
                          int64_t dilation, int64_t size) {
  int64_t at = transposed ? o + before - k * dilation : o * stride - before + k * dilation;
  if (transposed) {
    if (at < 0 || at % stride != 0) return -1;
    at /= stride;
  }
  return at >= 0 && at < size ? at : -1;
}

// Copies may write so many bytes more, which are written again or lie behind the panel.
inline constexpr int64_t kCopyStep = 16, kPanelSlack = 64;

// Copies a run of bytes, short ones in whole steps where so much can be read: `readable` are left
// from `from` on.
inline void copy_run(uint8_t* to, const uint8_t* from, int64_t bytes, int64_t readable) {
  if (bytes > 8 * kCopyStep || round_up(bytes, kCopyStep) > readable) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  for (int64_t i = 0; i < bytes; i += kCopyStep) std::memcpy(to + i, from + i, kCopyStep);
}

// Windows within the image, in elements: rows of `run` that lie `pitch` apart, windows `next`
// apart; each fills `stride` of the panel.
template <typename T>
struct WindowRuns {
  const T* from;
  int64_t count, rows, run, pitch, next, stride;
  T fill;

  // Whether they are short, and can be read in whole steps before `end`.
  bool are_short(const T* end) const {
    const int64_t last = (count - 1) * next + (rows - 1) * pitch;
    return steps() <= 4 &&
           (end - from - last) * static_cast<int64_t>(sizeof(T)) >= steps() * kCopyStep;
  }
  int64_t steps() const {
    return (run * static_cast<int64_t>(sizeof(T)) + kCopyStep - 1) / kCopyStep;
  }

  template <int kSteps>
  void copy(T* to) const {
    const T* window = from;
    for (int64_t i = 0; i < count; ++i, window += next, to += stride) {
      for (int64_t row = 0; row < rows; ++row)
        std::memcpy(to + row * run, window + row * pitch, kSteps * kCopyStep);
      for (int64_t rest = rows * run; rest < stride; ++rest) to[rest] = fill;
    }
  }
  void copy_all(T* to) const {
    switch (steps()) {
      case 1:
        return copy<1>(to);
      case 2:
        return copy<2>(to);
      case 3:
        return copy<3>(to);
      default:
        return copy<4>(to);
    }
  }
};

// What the windows of the pixels [begin, end) see of a group's channels, [pixels][stride]; `fill`
// stands for what lies outside of the image and for the columns past group_cols. The panel has
// kPanelSlack bytes behind it.
template <typename T>
void fill_panel(const ConvShape& s, const T* x, int64_t group, int64_t begin, int64_t end, T fill,
                int64_t stride, T* panel) {
  const Window& w = s.window;
  const int64_t depth = s.group_channels(), rest = stride - s.group_cols();
  // Pixels side by side lie one after the other.
  const bool runs = !s.transposed && s.groups == 1 && w.dilation_w == 1;
  const T* x_end = x + s.pixels / (s.out_h * s.out_w) * s.height * s.width * s.channels;
  int64_t ox = begin % s.out_w, oy = begin / s.out_w % s.out_h, image = begin / s.out_w / s.out_h;
  const auto next_pixel = [&] {
    if (++ox < s.out_w) return;
    ox = 0;
    if (++oy == s.out_h) oy = 0, ++image;
  };
  for (int64_t pixel = begin; pixel < end; ++pixel, panel += stride) {
    const T* base = x + image * s.height * s.width * s.channels + group * depth;
    T* out = panel;
    const auto copy = [&](const T* from, int64_t count) {
      constexpr auto size = static_cast<int64_t>(sizeof(T));
      copy_run(reinterpret_cast<uint8_t*>(out), reinterpret_cast<const uint8_t*>(from),
               count * size, (x_end - from) * size);
      out += count;
    };
    const auto pad = [&](int64_t count) {
      if (count > 0) out = std::fill_n(out, count, fill);
    };
    const int64_t left = ox * w.stride_w - w.left, top = oy * w.stride_h - w.top;
    const int64_t first = std::clamp<int64_t>(-left, 0, w.kernel_w);
    const int64_t last = std::clamp<int64_t>(s.width - left, first, w.kernel_w);
    // Most windows lie within the image, and those of a row can be copied together.
    if (runs && left >= 0 && left + w.kernel_w <= s.width && top >= 0 &&
        top + w.reach_h() <= s.height) {
      const int64_t inside =
          std::min({end - pixel, s.out_w - ox, (s.width - w.kernel_w - left) / w.stride_w + 1});
      const WindowRuns<T> windows{base + (top * s.width + left) * depth,
                                  inside,
                                  w.kernel_h,
                                  w.kernel_w * depth,
                                  w.dilation_h * s.width * depth,
                                  w.stride_w * depth,
                                  stride,
                                  fill};
      if (windows.are_short(x_end)) {
        windows.copy_all(panel);
        pixel += inside - 1, panel += (inside - 1) * stride, ox += inside - 1;
        next_pixel();
        continue;
      }
    }
    for (int64_t ky = 0; ky < w.kernel_h; ++ky) {
      const int64_t iy =
          tap_source(s.transposed, oy, ky, w.stride_h, w.top, w.dilation_h, s.height);
      if (iy < 0) {
        pad(w.kernel_w * depth);
      } else if (runs) {
        pad(first * depth);
        if (first < last)
          copy(base + (iy * s.width + left + first) * depth, (last - first) * depth);
        pad((w.kernel_w - last) * depth);
      } else {
        for (int64_t kx = 0; kx < w.kernel_w; ++kx) {
          const int64_t ix =
              tap_source(s.transposed, ox, kx, w.stride_w, w.left, w.dilation_w, s.width);
          if (ix < 0) {
            pad(depth);
          } else {
            copy(base + (iy * s.width + ix) * s.channels, depth);
          }
        }
      }
    }
    pad(rest);
    next_pixel();
  }
}

}  // namespace satchel
