// conv2d and conv_transpose2d, channels-last, with weights in floats.
#include "../conv_panel.h"
#include "../depthwise.h"
#include "../float_layer.h"
#include "../winograd.h"

namespace satchel {

namespace {

// A thread's scratch: the panel, and results of a group that are not written where they belong.
struct Panel {
  int64_t rows, cols, results;  // floats in a row

  Panel(const ConvShape& s, int threads)
      : rows(0),
        cols(s.group_cols()),
        results(s.groups_fill_tiles() ? 0 : s.most_group_tile_rows()) {
    if (is_direct(s)) return;
    if (collide(cols)) cols += kApart;
    rows = panel_rows(s.pixels, cols * 4, threads);
  }
  // Whether the image itself serves as a panel.
  static bool is_direct(const ConvShape& s) {
    return s.is_plain() && !(collide(s.channels) && s.pixels >= kMany);
  }

 private:
  // Rows a page apart have the same places in a first-level cache, which has not enough for a block
  // of them.
  static bool collide(int64_t floats) { return floats % 1024 == 0; }
  static constexpr int64_t kApart = 16, kMany = 28;

 public:
  size_t results_at() const {
    return static_cast<size_t>(round_up(rows * cols * 4, 64) + kPanelSlack);
  }
  size_t bytes() const {
    return results_at() + static_cast<size_t>(round_up(rows * results * 4, 64));
  }
};

void check_layer(NodeCall& call, bool transposed) {
  require_array(call, call.in(0), DType::f32);
  require_array(call, *call.output, DType::f32);
  check_window(call, transposed);
  check_conv_weight(call);
  require(!call.in(1).weight->is_quantized(), call, "the weight must be a matrix of floats");
  if (call.has(2)) {
    require_array(call, call.in(2), DType::f32);
    require(call.in(2).rank == 1 && call.in(2).shape[0] == call.in(1).shape[0], call,
            "the bias does not fit");
  }
  if (call.has(3)) {
    require_array(call, call.in(3), DType::f32);
    require(call.params.integer[kGroups] == 1, call, "a layer of groups takes no residual");
    require(same_shape(call.in(3), *call.output), call, "the residual does not fit");
  }
  call.params.activation = activation_attribute(call);
}

void check_conv(NodeCall& call) {
  check_layer(call, false);
  require_images(call, window_of(call), call.in(1).shape[0]);
}

size_t conv_scratch(const NodeCall& call, int threads) {
  const ConvShape s = conv_shape(call);
  if (s.is_depthwise()) return depthwise_scratch(call, s, sizeof(float), threads);
  if (Winograd::suits(s, call.in(1).weight->matrix().encoding))
    return Winograd(s, threads).scratch();
  return scratch_apart(Panel(s, threads).bytes(), threads) * static_cast<size_t>(threads);
}

void check_conv_transpose(NodeCall& call) {
  check_layer(call, true);
  const Tensor &x = call.in(0), &y = *call.output;
  const Window w = window_of(call);
  for (size_t i = 1; i < 3; ++i)
    require(x.shape[i] <= kMaxDim / kLargestWindow, call, "the image is too large");
  require(x.shape[0] == y.shape[0] &&
              y.shape[1] == (x.shape[1] - 1) * w.stride_h + w.reach_h() - w.top - w.bottom &&
              y.shape[2] == (x.shape[2] - 1) * w.stride_w + w.reach_w() - w.left - w.right &&
              y.shape[3] == call.in(1).shape[0],
          call, "the output does not fit");
}

size_t conv_transpose_scratch(const NodeCall& call, int threads) {
  return scratch_apart(Panel(conv_shape(call, true), threads).bytes(), threads) *
         static_cast<size_t>(threads);
}

void run(const NodeCall& call, const Workspace& work, const ConvShape& s) {
  const PackedMatrix matrix = call.in(1).weight->matrix();
  const auto kernel =
      matrix.encoding == MatrixEncoding::f32 ? work.kernels.linear_f32 : work.kernels.linear_f16;
  const float *x = call.in(0).f32(), *bias = call.has(2) ? call.in(2).f32() : nullptr;
  float* y = call.output->f32();
  const Activation activation = call.params.activation;
  const FloatFinish finish(activation, call.has(3) ? call.in(3).f32() : nullptr);
  if (s.is_depthwise()) {
    const auto depthwise = matrix.encoding == MatrixEncoding::f32 ? work.kernels.depthwise_f32
                                                                  : work.kernels.depthwise_f16;
    return for_depthwise_rows(s, x, 0.0f, work,
                              [&](const DepthwisePixels<float>& pixels, int64_t first) {
                                depthwise(pixels, matrix, bias, activation, y + first * s.outputs);
                              });
  }
  if (Winograd::suits(s, matrix.encoding)) return run_winograd(s, x, matrix, bias, finish, y, work);
  if (Panel::is_direct(s))
    return float_layer(x, s.channels, s.pixels, matrix, bias, finish, y, s.outputs, work);
  const Panel layout(s, work.pool.size());
  const int64_t blocks = (s.pixels + layout.rows - 1) / layout.rows;
  work.pool.parallel_for(blocks, 1, [&](int64_t first, int64_t last, int thread) {
    uint8_t* scratch = work.scratch + static_cast<size_t>(thread) *
                                          scratch_apart(layout.bytes(), work.pool.size());
    float *panel = reinterpret_cast<float*>(scratch),
          *results = reinterpret_cast<float*>(scratch + layout.results_at());
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * s.pixels / blocks, end = (block + 1) * s.pixels / blocks,
                    rows = end - begin;
      for (int64_t group = 0; group < s.groups; ++group) {
        fill_panel(s, x, group, begin, end, 0.0f, layout.cols, panel);
        const int64_t from = group * s.group_outputs(), to = from + s.group_outputs();
        const int64_t tile = from / kTileRows, tile_end = (to + kTileRows - 1) / kTileRows;
        if (s.groups_fill_tiles()) {
          kernel(panel, layout.cols, rows, matrix, bias, rows_from(finish, begin * s.outputs), tile,
                 tile_end, y + begin * s.outputs, s.outputs);
          continue;
        }
        // Tiles that the group shares with others are computed as a whole, and its part is kept.
        const int64_t tile_start = tile * kTileRows;
        kernel(panel, layout.cols, rows, matrix, bias, activation, tile, tile_end,
               results - tile_start, layout.results);
        for (int64_t row = 0; row < rows; ++row) {
          std::memcpy(y + (begin + row) * s.outputs + from,
                      results + row * layout.results + from - tile_start,
                      static_cast<size_t>(to - from) * sizeof(float));
        }
      }
    }
  });
}

void run_conv(const NodeCall& call, const Workspace& work) { run(call, work, conv_shape(call)); }
void run_conv_transpose(const NodeCall& call, const Workspace& work) {
  run(call, work, conv_shape(call, true));
}

const OpDef kOps[] = {
    {{"conv2d",
      2,
      4,
      false,
      {"kernel", "stride", "padding", "dilation", "groups", "activation"},
      check_conv},
     {run_conv, conv_scratch}},
    {{"conv_transpose2d",
      2,
      3,
      false,
      {"kernel", "stride", "padding", "dilation", "groups", "activation"},
      check_conv_transpose},
     {run_conv_transpose, conv_transpose_scratch}},
};

}  // namespace

std::span<const OpDef> conv_ops() { return kOps; }

}  // namespace satchel
