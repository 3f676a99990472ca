// conv2d and conv_transpose2d, channels-last, with weights in floats.
//
// What the windows of some pixels see is copied into a panel [pixels][kernel, channels] that stays
// in the cache, and is multiplied with the weight as a linear layer's rows are. A kernel of one
// pixel needs no panel: its rows are the image itself.
#include <algorithm>
#include <cstring>

#include "../float_layer.h"
#include "../op.h"
#include "../window.h"

namespace satchel {

namespace {

constexpr int64_t kPanelFloats = 1 << 16;
constexpr int64_t kFewestPanelRows = 28, kMostPanelRows = 224;

constexpr size_t kGroups = kAfterWindow;

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

struct ConvShape {
  Window window;
  bool transposed;
  int64_t height, width, channels, out_h, out_w, outputs, pixels, groups;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  int64_t group_cols() const { return window.taps() * group_channels(); }
  bool is_plain() const {
    return groups == 1 && window.taps() == 1 && window.stride_h == 1 && window.stride_w == 1 && window.top == 0 &&
           window.bottom == 0 && window.left == 0 && window.right == 0;
  }
  // Tiles that hold outputs of a group: one more than needed where it starts within a tile.
  int64_t group_tiles() const {
    const int64_t tiles = (group_outputs() + kTileRows - 1) / kTileRows;
    return group_outputs() % kTileRows == 0 || groups == 1 ? tiles : tiles + 1;
  }
  bool groups_fill_tiles() const { return groups == 1 || group_outputs() % kTileRows == 0; }
  int64_t panel_rows() const { return std::clamp(kPanelFloats / group_cols(), kFewestPanelRows, kMostPanelRows); }
  // Bytes of a thread: the panel, and results of a group that are not written where they belong.
  size_t scratch() const {
    if (is_plain()) return 0;
    const int64_t floats = group_cols() + (groups_fill_tiles() ? 0 : group_tiles() * kTileRows);
    return static_cast<size_t>(round_up(panel_rows() * floats * static_cast<int64_t>(sizeof(float)), 64));
  }
};

ConvShape shape_of(const NodeCall& call, bool transposed) {
  const Tensor &x = call.in(0), &y = *call.output;
  return {window_of(call), transposed, x.shape[1], x.shape[2], x.shape[3], y.shape[1],
          y.shape[2],      y.shape[3], y.product(0, 3), call.params.integer[kGroups]};
}

void check_layer(NodeCall& call) {
  const Tensor &x = call.in(0), &w = call.in(1), &y = *call.output;
  require_array(call, x, DType::f32);
  require_array(call, y, DType::f32);
  require(x.rank == 4 && y.rank == 4, call, "x and the output must be [N, H, W, C]");
  require(w.weight && w.weight->is_matrix() && !w.weight->is_quantized(), call,
          "the weight must be a packed matrix of floats");
  const int64_t groups = call.params.integer[kGroups] = int_attribute(call, "groups", 1);
  const int64_t channels = x.shape[3], outputs = w.shape[0];
  require(groups >= 1 && channels % groups == 0 && outputs % groups == 0, call, "the groups do not fit");
  const int64_t taps = window_of(call).taps();
  require(w.shape[1] % taps == 0 && w.shape[1] / taps == channels / groups, call, "the weight does not fit");
  if (call.has(2)) {
    require_array(call, call.in(2), DType::f32);
    require(call.in(2).rank == 1 && call.in(2).shape[0] == outputs, call, "the bias does not fit");
  }
  call.params.activation = activation_attribute(call);
}

size_t check_conv(NodeCall& call, int threads) {
  check_window(call);
  check_layer(call);
  require_images(call, window_of(call), call.in(1).shape[0]);
  return shape_of(call, false).scratch() * static_cast<size_t>(threads);
}

size_t check_conv_transpose(NodeCall& call, int threads) {
  check_window(call, true);
  check_layer(call);
  const Tensor &x = call.in(0), &y = *call.output;
  const Window w = window_of(call);
  for (size_t i = 1; i < 3; ++i) require(x.shape[i] <= kMaxDim / kLargestWindow, call, "the image is too large");
  require(x.shape[0] == y.shape[0] && y.shape[1] == (x.shape[1] - 1) * w.stride_h + w.reach_h() - w.top - w.bottom &&
              y.shape[2] == (x.shape[2] - 1) * w.stride_w + w.reach_w() - w.left - w.right &&
              y.shape[3] == call.in(1).shape[0],
          call, "the output does not fit");
  return shape_of(call, true).scratch() * static_cast<size_t>(threads);
}

// Where place k of a kernel looks for the output at `o`: a row or column of the image, or -1.
int64_t source(bool transposed, int64_t o, int64_t k, int64_t stride, int64_t before, int64_t dilation, int64_t size) {
  int64_t at;
  if (transposed) {
    at = o + before - k * dilation;
    if (at < 0 || at % stride != 0) return -1;
    at /= stride;
  } else {
    at = o * stride - before + k * dilation;
  }
  return at >= 0 && at < size ? at : -1;
}

// What the windows of the pixels [begin, end) see of a group's channels: [pixels][group_cols].
void fill_panel(const ConvShape& s, const float* x, int64_t group, int64_t begin, int64_t end, float* panel) {
  const Window& w = s.window;
  const int64_t depth = s.group_channels();
  for (int64_t pixel = begin; pixel < end; ++pixel) {
    const int64_t ox = pixel % s.out_w, oy = pixel / s.out_w % s.out_h, image = pixel / s.out_w / s.out_h;
    const float* base = x + image * s.height * s.width * s.channels + group * depth;
    for (int64_t ky = 0; ky < w.kernel_h; ++ky) {
      const int64_t iy = source(s.transposed, oy, ky, w.stride_h, w.top, w.dilation_h, s.height);
      for (int64_t kx = 0; kx < w.kernel_w; ++kx, panel += depth) {
        const int64_t ix = source(s.transposed, ox, kx, w.stride_w, w.left, w.dilation_w, s.width);
        if (iy < 0 || ix < 0) {
          std::fill(panel, panel + depth, 0.0f);
        } else {
          std::memcpy(panel, base + (iy * s.width + ix) * s.channels, static_cast<size_t>(depth) * sizeof(float));
        }
      }
    }
  }
}

void run(const NodeCall& call, const Workspace& work, const ConvShape& s) {
  const PackedMatrix matrix = call.in(1).weight->matrix();
  const auto kernel = matrix.encoding == MatrixEncoding::f32 ? work.kernels.linear_f32 : work.kernels.linear_f16;
  const float *x = call.in(0).f32(), *bias = call.has(2) ? call.in(2).f32() : nullptr;
  float* y = call.output->f32();
  const Activation activation = call.params.activation;
  if (s.is_plain()) return float_layer(x, s.pixels, matrix, bias, activation, y, work);
  const int64_t most = s.panel_rows();
  const size_t scratch = s.scratch();
  const int64_t blocks = (s.pixels + most - 1) / most;
  work.pool.parallel_for(blocks, 1, [&](int64_t first, int64_t last, int thread) {
    float* panel = reinterpret_cast<float*>(work.scratch + static_cast<size_t>(thread) * scratch);
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * most, end = std::min(begin + most, s.pixels), rows = end - begin;
      for (int64_t group = 0; group < s.groups; ++group) {
        fill_panel(s, x, group, begin, end, panel);
        const int64_t from = group * s.group_outputs(), to = from + s.group_outputs();
        const int64_t tile = from / kTileRows, tile_end = (to + kTileRows - 1) / kTileRows;
        if (s.groups_fill_tiles()) {
          kernel(panel, s.group_cols(), rows, matrix, bias, activation, tile, tile_end, y + begin * s.outputs,
                 s.outputs);
          continue;
        }
        // Tiles that the group shares with others are computed as a whole, and its part is kept.
        float* results = panel + rows * s.group_cols();
        const int64_t count = std::min(tile_end * kTileRows, s.outputs) - tile * kTileRows;
        kernel(panel, s.group_cols(), rows, matrix, bias, activation, tile, tile_end,
               results - tile * kTileRows, count);
        for (int64_t row = 0; row < rows; ++row) {
          std::memcpy(y + (begin + row) * s.outputs + from, results + row * count + from - tile * kTileRows,
                      static_cast<size_t>(to - from) * sizeof(float));
        }
      }
    }
  });
}

void run_conv(const NodeCall& call, const Workspace& work) { run(call, work, shape_of(call, false)); }
void run_conv_transpose(const NodeCall& call, const Workspace& work) { run(call, work, shape_of(call, true)); }

const OpDef kOps[] = {
    {"conv2d", 2, 3, false, {"kernel", "stride", "padding", "dilation", "groups", "activation"}, check_conv, run_conv},
    {"conv_transpose2d", 2, 3, false, {"kernel", "stride", "padding", "dilation", "groups", "activation"},
     check_conv_transpose, run_conv_transpose},
};

}  // namespace

std::span<const OpDef> conv_ops() { return kOps; }

}  // namespace satchel
