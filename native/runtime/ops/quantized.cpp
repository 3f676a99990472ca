// qconv2d and qlinear: layers of unsigned codes and weights of 8 bits.
#include <cmath>

#include "../conv_panel.h"
#include "../conv_windows.h"
#include "../depthwise.h"
#include "../integer_layer.h"
#include "../joined_addition.h"
#include "../layer_pieces.h"

namespace satchel {

namespace {

using namespace integer_layer;

constexpr int64_t kMostColumns = 65536;  // 255 * 127 * 65536 is below 2^31

void check_steps(NodeCall& call) {
  const Tensor &w = call.in(1), &y = *call.output;
  require_array(call, call.in(0), DType::u8);
  require(w.weight && w.weight->is_integers(), call, "the weight must be a matrix of integers");
  require(w.shape[1] <= kMostColumns, call, "there are too many columns to add up");
  for (const size_t i : {kScale, kBias}) {
    if (!call.has(i)) continue;
    require_array(call, call.in(i), DType::f32);
    require(call.in(i).rank == 1 && call.in(i).shape[0] == w.shape[0], call,
            "the scale or bias does not fit");
  }
  const double out_scale = number_attribute(call, "out_scale", 0.0);
  const float inverse = out_scale == 0 ? 0.0f : 1.0f / static_cast<float>(out_scale);
  // Whether the result is u8 is told by the inverse, so it must not vanish.
  require(out_scale == 0 || (inverse > 0 && std::isfinite(inverse)), call,
          "the scale of the result is out of range");
  call.params.number[kInverseOutScale] = inverse;
  call.params.number[kResidualScale] = number_attribute(call, "residual_scale", 0.0);
  require_array(call, y, inverse > 0 ? DType::u8 : DType::f32);
  if (call.has(kResidual)) {
    require_array(call, call.in(kResidual), DType::u8);
    require(same_shape(call.in(kResidual), y), call, "the residual does not fit");
  }
  int64_t* zeros = call.params.integer;
  zeros[kXZero] = int_attribute(call, "x_zero", 0);
  zeros[kOutZero] = int_attribute(call, "out_zero", 0);
  zeros[kResidualZero] = int_attribute(call, "residual_zero", 0);
  for (const size_t i : {kXZero, kOutZero, kResidualZero}) {
    require(zeros[i] >= 0 && zeros[i] <= 255, call, "a zero point is not a code");
  }
  call.params.activation = activation_attribute(call);
}

IntegerResult result_of(const NodeCall& call) {
  IntegerResult r{};
  r.x_zero = static_cast<int32_t>(call.params.integer[kXZero]);
  r.scale = call.in(kScale).f32();
  r.bias = call.has(kBias) ? call.in(kBias).f32() : nullptr;
  r.activation = call.params.activation;
  r.residual = call.has(kResidual) ? call.in(kResidual).data : nullptr;
  r.residual_scale = static_cast<float>(call.params.number[kResidualScale]);
  r.residual_zero = static_cast<int32_t>(call.params.integer[kResidualZero]);
  r.inverse_out_scale = static_cast<float>(call.params.number[kInverseOutScale]);
  r.out_zero = static_cast<int32_t>(call.params.integer[kOutZero]);
  r.out = call.output->data;
  r.ldo = r.ldr = call.output->last();
  return r;
}

int64_t item_size(const IntegerResult& r) { return r.inverse_out_scale > 0 ? 1 : sizeof(float); }

// The result from row `first` on.
IntegerResult rows_from(IntegerResult r, int64_t first) {
  r.out = static_cast<uint8_t*>(r.out) + first * r.ldo * item_size(r);
  if (r.residual) r.residual += first * r.ldr;
  if (r.addend) r.addend += first * r.ldo;
  return r;
}

// The weight for a call with the tiles before `tile`, whose thread goes on to those before `end`.
IntegerMatrix before_tile(IntegerMatrix w, int64_t tile, int64_t end) {
  constexpr int64_t kMostAhead = 1 << 18;  // of the second-level cache
  const int64_t tile_bytes = w.steps * 4 * kTileRows;
  w.next = w.codes + tile * tile_bytes;
  w.next_bytes = std::min((end - tile) * tile_bytes, kMostAhead);
  return w;
}

// Rows of codes, a multiple of four in each, times the weight.
void multiply_rows(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                   const IntegerResult& result, const Workspace& work) {
  const int64_t tiles = (w.rows + kTileRows - 1) / kTileRows;
  const int64_t weights = w.rows * w.steps * 4;
  const LayerPieces::Limits limits{224, 224, work.kernels.weights_are_dear ? 1 : 4};
  const LayerPieces pieces(m, tiles, w.rows + w.steps * 4, weights, weights, limits,
                           work.pool.size());
  pieces.run(work.pool, [&](int64_t first, int64_t last, int64_t tile, int64_t after, int64_t end) {
    work.kernels.linear_i8(x + first * ldx, ldx, last - first, before_tile(w, after, end),
                           rows_from(result, first), tile, after);
  });
}

// --- qlinear(x, weight, scale, bias?, residual?) ---

void check_qlinear(NodeCall& call) {
  const Tensor &x = call.in(0), &w = call.in(1), &y = *call.output;
  check_steps(call);
  require(x.rank >= 1 && y.rank == x.rank && std::equal(x.shape, x.shape + x.rank - 1, y.shape),
          call, "x and the output differ");
  require(x.last() == w.shape[1] && y.last() == w.shape[0], call, "the sizes do not fit");
}

size_t qlinear_scratch(const NodeCall& call, int) {
  const Tensor& x = call.in(0);
  // Rows that are no multiple of four are copied and filled up.
  if (x.last() % 4 == 0) return 0;
  const auto bytes = checked_product(static_cast<uint64_t>(x.product(0, x.rank - 1)),
                                     static_cast<uint64_t>(round_up(x.last(), 4)));
  require(bytes.has_value(), call, "x is too large");
  return static_cast<size_t>(*bytes);
}

void run_qlinear(const NodeCall& call, const Workspace& work) {
  const Tensor& x = call.in(0);
  const int64_t cols = x.last(), rows = x.product(0, x.rank - 1), stride = round_up(cols, 4);
  const uint8_t* codes = x.data;
  if (stride != cols) {
    work.pool.parallel_for(rows, grain_for(rows, work.pool.size(), 16),
                           [&](int64_t begin, int64_t end, int) {
                             for (int64_t row = begin; row < end; ++row) {
                               uint8_t* to = work.scratch + row * stride;
                               std::memset(std::copy_n(x.data + row * cols, cols, to), 0,
                                           static_cast<size_t>(stride - cols));
                             }
                           });
    codes = work.scratch;
  }
  IntegerResult result = result_of(call);
  if (call.joined) {
    const NodeCall& addition = *(&call + 1);
    result.addend = added_to(call, addition).f32();
    result.out = addition.output->data;
  }
  multiply_rows(codes, stride, rows, call.in(1).weight->integers(), result, work);
}

// Its own result may have got the place of what the layer reads, and then it has to wait.
bool joins_addition(std::span<const NodeCall> calls, const NodeCall& next) {
  const NodeCall& layer = calls.front();
  return calls.size() == 1 && adds_to(layer, next) && are_apart(layer.in(0), *next.output);
}

// --- qconv2d(x, weight, scale, bias?, residual?) ---

// Whether, where weights are dear, all threads fill one panel of the whole image and share out the
// weight. Copies of whole steps do not reach into what another thread writes.
bool may_have_common_panel(const ConvShape& s, int threads) {
  if (threads == 1 || s.groups != 1 || s.is_plain() || s.channels % kCopyStep != 0) return false;
  return s.outputs * s.group_cols() > 4 * s.pixels * (s.outputs + s.group_cols());
}

void run_on_common_panel(const ConvShape& s, const uint8_t* x, const IntegerMatrix& w,
                         const IntegerResult& result, const Workspace& work) {
  const int64_t stride = s.group_cols();
  const auto fill = static_cast<uint8_t>(result.x_zero);
  work.pool.parallel_for(
      s.pixels, grain_for(s.pixels, work.pool.size(), 1), [&](int64_t begin, int64_t end, int) {
        fill_panel(s, x, 0, begin, end, fill, stride, work.scratch + begin * stride);
      });
  multiply_rows(work.scratch, stride, s.pixels, w, result, work);
}

constexpr size_t kFlagBytes = 64;  // whether a thread has its copy

// Whether, where weights are dear, threads share out the weight of windows.
bool share_windows_weight(const ConvShape& s, int threads) {
  return threads > 1 && Windowed::fits(s) && Windowed::has_large_weight(s);
}

// Windows whose threads share out the weight: each copies what it needs with padding around it,
// before its first piece.
void run_windowed_by_tiles(const ConvShape& s, const uint8_t* x, const IntegerMatrix& w,
                           const IntegerResult& result, const Workspace& work) {
  const Windowed layout(s, work.pool.size(), true);
  const size_t apart = scratch_apart(layout.bytes() + kFlagBytes, work.pool.size());
  const int64_t images = s.pixels / (s.out_h * s.out_w),
                tiles = (w.rows + kTileRows - 1) / kTileRows;
  const auto fill = static_cast<uint8_t>(result.x_zero);
  const auto has_copy = [&](int thread) {
    return work.scratch + static_cast<size_t>(thread) * apart;
  };
  for (int64_t image = 0; image < images; ++image) {
    const uint8_t* from = x + image * s.height * s.width * s.channels;
    const IntegerResult part = rows_from(result, image * s.out_h * s.out_w);
    for (int thread = 0; thread < work.pool.size(); ++thread) *has_copy(thread) = 0;
    share_tiles(work.pool, tiles, [&](int64_t tile, int64_t after, int64_t end, int thread) {
      uint8_t* copy = has_copy(thread) + kFlagBytes;
      const CodeWindows windows = *has_copy(thread) ? layout.placed(from, 0, s.out_h, copy)
                                                    : layout.windows(from, 0, s.out_h, fill, copy);
      *has_copy(thread) = 1;
      work.kernels.conv_i8(windows, before_tile(w, after, end), part, tile, after);
    });
  }
}

void run_windowed(const ConvShape& s, const uint8_t* x, const IntegerMatrix& w,
                  const IntegerResult& result, const Workspace& work) {
  if (share_windows_weight(s, work.pool.size()) && work.kernels.weights_are_dear) {
    return run_windowed_by_tiles(s, x, w, result, work);
  }
  const Windowed layout(s, work.pool.size(), false);
  const int64_t images = s.pixels / (s.out_h * s.out_w),
                tiles = (w.rows + kTileRows - 1) / kTileRows;
  const auto fill = static_cast<uint8_t>(result.x_zero);
  work.pool.parallel_for(images * layout.pieces, 1, [&](int64_t first, int64_t last, int thread) {
    uint8_t* scratch = work.scratch + static_cast<size_t>(thread) *
                                          scratch_apart(layout.bytes(), work.pool.size());
    for (int64_t i = first; i < last; ++i) {
      const int64_t image = i / layout.pieces, piece = i % layout.pieces;
      const int64_t begin = piece * s.out_h / layout.pieces,
                    end = (piece + 1) * s.out_h / layout.pieces;
      const uint8_t* from = x + image * s.height * s.width * s.channels;
      work.kernels.conv_i8(layout.windows(from, begin, end, fill, scratch), w,
                           rows_from(result, (image * s.out_h + begin) * s.out_w), 0, tiles);
    }
  });
}

// A thread's scratch: the panel, and results of a group that are not written where they belong.
struct Panel {
  int64_t rows, stride, results;  // stride: bytes in a row of codes; results: floats in a row

  Panel(const ConvShape& s, int threads)
      : rows(0),
        stride(round_up(s.group_cols(), 4)),
        results(s.groups_fill_tiles() ? 0 : s.most_group_tile_rows()) {
    if (!is_direct(s)) rows = panel_rows(s.pixels, stride, threads);
  }
  static bool is_direct(const ConvShape& s) { return s.is_plain() && s.channels % 4 == 0; }
  size_t results_at() const {
    return static_cast<size_t>(round_up(rows * stride, 64) + kPanelSlack);
  }
  size_t bytes() const {
    return results_at() + static_cast<size_t>(round_up(rows * results * 4, 64));
  }
};

bool is_depthwise(const ConvShape& s) {
  return s.is_depthwise() && s.window.taps() <= kMostDepthwiseTaps;
}

void check_qconv(NodeCall& call) {
  check_window(call);
  check_conv_weight(call);
  check_steps(call);
  require_images(call, window_of(call), call.in(1).shape[0]);
}

size_t qconv_scratch(const NodeCall& call, int threads) {
  const ConvShape s = conv_shape(call);
  if (is_depthwise(s)) return depthwise_scratch(call, s, 1, threads);
  const size_t rows = Windowed::fits(s) ? Windowed(s, threads, false).bytes() : 0;
  const size_t image =
      share_windows_weight(s, threads) ? Windowed(s, threads, true).bytes() + kFlagBytes : 0;
  const size_t most = std::max({rows, image, Panel(s, threads).bytes()});
  const size_t panels = scratch_apart(most, threads) * static_cast<size_t>(threads);
  const size_t common =
      may_have_common_panel(s, threads) ? static_cast<size_t>(s.pixels * s.group_cols()) : 0;
  return std::max(common + kPanelSlack, panels);
}

void run_qconv(const NodeCall& call, const Workspace& work) {
  const ConvShape s = conv_shape(call);
  const IntegerMatrix w = call.in(1).weight->integers();
  const IntegerResult result = result_of(call);
  const uint8_t* x = call.in(0).data;
  const auto fill = static_cast<uint8_t>(result.x_zero);
  if (is_depthwise(s)) {
    return for_depthwise_rows(s, x, fill, work,
                              [&](const DepthwisePixels<uint8_t>& pixels, int64_t first) {
                                work.kernels.depthwise_i8(pixels, w, rows_from(result, first));
                              });
  }
  if (Panel::is_direct(s)) return multiply_rows(x, s.channels, s.pixels, w, result, work);
  if (Windowed::suits(s, work.kernels)) return run_windowed(s, x, w, result, work);
  if (work.kernels.weights_are_dear && may_have_common_panel(s, work.pool.size())) {
    return run_on_common_panel(s, x, w, result, work);
  }
  const Panel layout(s, work.pool.size());
  const int64_t blocks = (s.pixels + layout.rows - 1) / layout.rows;
  work.pool.parallel_for(blocks, 1, [&](int64_t first, int64_t last, int thread) {
    uint8_t* panel = work.scratch +
                     static_cast<size_t>(thread) * scratch_apart(layout.bytes(), work.pool.size());
    uint8_t* results = panel + layout.results_at();
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * s.pixels / blocks, end = (block + 1) * s.pixels / blocks,
                    rows = end - begin;
      for (int64_t group = 0; group < s.groups; ++group) {
        fill_panel(s, x, group, begin, end, fill, layout.stride, panel);
        const int64_t from = group * s.group_outputs(), to = from + s.group_outputs();
        const int64_t tile = from / kTileRows, tile_end = (to + kTileRows - 1) / kTileRows;
        IntegerResult part = rows_from(result, begin);
        if (s.groups_fill_tiles()) {
          work.kernels.linear_i8(panel, layout.stride, rows, w, part, tile, tile_end);
          continue;
        }
        // Tiles that the group shares with others are computed as a whole, and its part is kept.
        const int64_t size = item_size(part), tile_start = tile * kTileRows;
        uint8_t* y = static_cast<uint8_t*>(part.out);
        part.out = results - tile_start * size;
        part.ldo = layout.results;
        work.kernels.linear_i8(panel, layout.stride, rows, w, part, tile, tile_end);
        for (int64_t row = 0; row < rows; ++row) {
          std::memcpy(y + (row * s.outputs + from) * size,
                      results + (row * layout.results + from - tile_start) * size,
                      static_cast<size_t>((to - from) * size));
        }
      }
    }
  });
}

const OpDef kOps[] = {
    {{"qconv2d",
      3,
      5,
      false,
      {"kernel", "stride", "padding", "dilation", "groups", "activation", "x_zero", "out_scale",
       "out_zero", "residual_scale", "residual_zero"},
      check_qconv},
     {run_qconv, qconv_scratch}},
    {{"qlinear",
      3,
      5,
      false,
      {"activation", "x_zero", "out_scale", "out_zero", "residual_scale", "residual_zero"},
      check_qlinear},
     {run_qlinear, qlinear_scratch, joins_addition}},
};

}  // namespace

std::span<const OpDef> quantized_ops() { return kOps; }

}  // namespace satchel
