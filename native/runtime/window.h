// Windows that slide over an image [N, H, W, C], from the attributes of a node.
#pragma once

#include "op.h"

namespace satchel {

inline constexpr int64_t kLargestWindow = int64_t{1}
                                          << 20;  // of a kernel, stride, padding or dilation

struct Window {
  int64_t kernel_h, kernel_w, stride_h, stride_w;
  int64_t top, bottom, left, right;
  int64_t dilation_h, dilation_w;

  // Rows and columns that a window spans.
  int64_t reach_h() const { return dilation_h * (kernel_h - 1) + 1; }
  int64_t reach_w() const { return dilation_w * (kernel_w - 1) + 1; }
  int64_t taps() const { return kernel_h * kernel_w; }
};

// Reads kernel, stride, padding and dilation into the node's params and checks them. With
// `overhang`, the padding at the bottom and right may be negative.
void check_window(NodeCall& call, bool overhang = false);
// What check_window found.
Window window_of(const NodeCall& call);
// The first of `integer` in the params that a window leaves to its op.
inline constexpr size_t kAfterWindow = 10;

// Windows along one axis; with `ceil` the last one may reach over the edge. 0 where none fits.
int64_t windows_along(int64_t size, int64_t before, int64_t after, int64_t reach, int64_t stride,
                      bool ceil);

// Requires x [N, H, W, C] and an output [N, OH, OW, outputs] of the size that the window makes.
void require_images(const NodeCall& call, const Window& window, int64_t outputs, bool ceil = false);

}  // namespace satchel
