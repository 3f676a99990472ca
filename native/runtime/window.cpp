#include "window.h"

#include <algorithm>
#include <iterator>

namespace satchel {

namespace {

std::vector<int64_t> sizes_attribute(const NodeCall& call, const char* name, size_t count,
                                     bool optional) {
  if (optional && !call.info->attributes.find(name)) {
    return std::vector<int64_t>(count, count == 4 ? 0 : 1);
  }
  const std::vector<int64_t> values = ints_attribute(call, name);
  if (values.size() != count)
    reject(call, std::string("the attribute ") + name + " has a wrong length");
  return values;
}

}  // namespace

void check_window(NodeCall& call, bool overhang) {
  int64_t* at = call.params.integer;
  for (const char* name : {"kernel", "stride", "dilation"}) {
    for (const int64_t value : sizes_attribute(call, name, 2, name != std::string("kernel"))) {
      if (value < 1 || value > kLargestWindow)
        reject(call, std::string("the attribute ") + name + " is out of range");
      *at++ = value;
    }
  }
  const std::vector<int64_t> padding = sizes_attribute(call, "padding", 4, true);
  for (size_t i = 0; i < 4; ++i) {
    const int64_t lowest = overhang && i % 2 == 1 ? -kLargestWindow : 0;
    require(padding[i] >= lowest && padding[i] <= kLargestWindow, call,
            "the padding is out of range");
    *at++ = padding[i];
  }
}

Window window_of(const NodeCall& call) {
  const int64_t* p = call.params.integer;
  return {p[0], p[1], p[2], p[3], p[6], p[7], p[8], p[9], p[4], p[5]};
}

int64_t windows_along(int64_t size, int64_t before, int64_t after, int64_t reach, int64_t stride,
                      bool ceil) {
  const int64_t rest = size + before + after - reach;
  if (rest < 0) return 0;
  const int64_t count = rest / stride + 1;
  // One more, if it starts within the image or the padding before it.
  return ceil && rest % stride != 0 && count * stride < size + before ? count + 1 : count;
}

void require_images(const NodeCall& call, const Window& window, int64_t outputs, bool ceil) {
  const Tensor &x = call.in(0), &y = *call.output;
  require(x.rank == 4 && y.rank == 4 && x.shape[0] == y.shape[0], call,
          "x and the output must be [N, H, W, C]");
  require(y.shape[1] == windows_along(x.shape[1], window.top, window.bottom, window.reach_h(),
                                      window.stride_h, ceil) &&
              y.shape[2] == windows_along(x.shape[2], window.left, window.right, window.reach_w(),
                                          window.stride_w, ceil) &&
              y.shape[3] == outputs,
          call, "the output does not fit");
}

}  // namespace satchel
