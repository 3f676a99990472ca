// max_pool2d and avg_pool2d, channels-last.
#include <algorithm>
#include <limits>

#include "../cpu_op.h"
#include "../window.h"

namespace satchel {

namespace {

constexpr size_t kCountPadding = kAfterWindow, kDivisor = kAfterWindow + 1;

void check_images(NodeCall& call, DType dtype) {
  require_array(call, call.in(0), dtype);
  require_array(call, *call.output, dtype);
  require(call.in(0).rank == 4, call, "x must be [N, H, W, C]");
  check_window(call);
  const Window window = window_of(call);
  require_images(call, window, call.in(0).shape[3], int_attribute(call, "ceil_mode", 0) != 0);
  require(std::max(window.top, window.bottom) < window.reach_h() &&
              std::max(window.left, window.right) < window.reach_w(),
          call, "the padding is as large as the kernel");
}

void check_max_pool(NodeCall& call) {
  check_images(call, call.output->dtype == DType::u8 ? DType::u8 : DType::f32);
}

void check_avg_pool(NodeCall& call) {
  call.params.integer[kCountPadding] = int_attribute(call, "count_include_pad", 1);
  call.params.integer[kDivisor] = int_attribute(call, "divisor", 0);
  require(call.params.integer[kDivisor] >= 0, call, "the divisor is negative");
  check_images(call, DType::f32);
}

// The places [first, last) of a kernel that fall within the image, when the window starts at
// `start`.
struct Places {
  int64_t first, last;
  Places(int64_t start, int64_t kernel, int64_t dilation, int64_t size)
      : first(start < 0 ? std::min(kernel, (-start + dilation - 1) / dilation) : 0),
        last(start < size ? std::min(kernel, (size - start + dilation - 1) / dilation) : 0) {}
};

constexpr int64_t kLanes = 64;  // channels that are computed together, and stay in registers

// Takes in every pixel of a window with add(lanes, pixel), from lanes that are all `first`, and
// writes what end(lane, y, x) makes of it, for each pixel of the output.
template <typename T, typename Add, typename End>
void pool(const NodeCall& call, const Workspace& work, T first_value, const Add& add,
          const End& end) {
  const Tensor &x = call.in(0), &y = *call.output;
  const Window w = window_of(call);
  const int64_t height = x.shape[1], width = x.shape[2], channels = x.shape[3];
  const int64_t out_h = y.shape[1], out_w = y.shape[2], rows = y.shape[0] * out_h;
  work.pool.parallel_for(rows, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      const T* image = reinterpret_cast<const T*>(x.data) + row / out_h * height * width * channels;
      const int64_t oy = row % out_h, iy = oy * w.stride_h - w.top;
      const Places down(iy, w.kernel_h, w.dilation_h, height);
      for (int64_t ox = 0; ox < out_w; ++ox) {
        const int64_t ix = ox * w.stride_w - w.left;
        const Places across(ix, w.kernel_w, w.dilation_w, width);
        for (int64_t channel = 0; channel < channels; channel += kLanes) {
          const int64_t there = std::min(kLanes, channels - channel);
          T lanes[kLanes];
          std::fill(lanes, lanes + kLanes, first_value);
          for (int64_t ky = down.first; ky < down.last; ++ky) {
            for (int64_t kx = across.first; kx < across.last; ++kx) {
              const T* pixel =
                  image + ((iy + ky * w.dilation_h) * width + ix + kx * w.dilation_w) * channels +
                  channel;
              if (there == kLanes) {
                for (int64_t i = 0; i < kLanes; ++i) lanes[i] = add(lanes[i], pixel[i]);
              } else {
                for (int64_t i = 0; i < there; ++i) lanes[i] = add(lanes[i], pixel[i]);
              }
            }
          }
          end(lanes, there, oy, ox);
          std::copy_n(lanes, there,
                      reinterpret_cast<T*>(y.data) + (row * out_w + ox) * channels + channel);
        }
      }
    }
  });
}

void run_max_pool(const NodeCall& call, const Workspace& work) {
  const auto as_it_is = [](auto*, int64_t, int64_t, int64_t) {};
  if (call.output->dtype == DType::u8) {
    return pool<uint8_t>(
        call, work, 0, [](uint8_t a, uint8_t b) { return b > a ? b : a; }, as_it_is);
  }
  pool<float>(
      call, work, -std::numeric_limits<float>::infinity(),
      [](float a, float b) { return b > a || b != b ? b : a; }, as_it_is);
}

void run_avg_pool(const NodeCall& call, const Workspace& work) {
  const Tensor& x = call.in(0);
  const Window w = window_of(call);
  const int64_t divisor = call.params.integer[kDivisor];
  const bool padding_counts = call.params.integer[kCountPadding] != 0;
  // What lies past the padding, where ceil_mode lets a window reach, never counts.
  const auto counted = [&](int64_t start, int64_t kernel, int64_t size, int64_t after) {
    const int64_t end = std::min(start + kernel, padding_counts ? size + after : size);
    return end - (padding_counts ? start : std::max<int64_t>(start, 0));
  };
  pool<float>(
      call, work, 0.0f, [](float a, float b) { return a + b; },
      [&](float* lanes, int64_t there, int64_t oy, int64_t ox) {
        const int64_t count =
            divisor ? divisor
                    : counted(oy * w.stride_h - w.top, w.kernel_h, x.shape[1], w.bottom) *
                          counted(ox * w.stride_w - w.left, w.kernel_w, x.shape[2], w.right);
        for (int64_t i = 0; i < there; ++i) lanes[i] /= static_cast<float>(count);
      });
}

const OpDef kOps[] = {
    {{"max_pool2d",
      1,
      1,
      false,
      {"kernel", "stride", "padding", "dilation", "ceil_mode"},
      check_max_pool},
     {run_max_pool}},
    {{"avg_pool2d",
      1,
      1,
      false,
      {"kernel", "stride", "padding", "ceil_mode", "count_include_pad", "divisor"},
      check_avg_pool},
     {run_avg_pool}},
};

}  // namespace

std::span<const OpDef> pool_ops() { return kOps; }

}  // namespace satchel
