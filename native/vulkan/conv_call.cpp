#include "conv_call.h"

namespace satchel::vulkan {

namespace {

constexpr uint32_t kSide = 64;  // pixels and outputs of a workgroup of conv_tile.glsl

bool is_point(const ConvShape& s) { return s.is_plain() && !s.transposed; }

}  // namespace

ConvShape shape_of_rows(const NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  const int64_t rows = x.product(0, x.rank - 1);
  return {{1, 1, 1, 1, 0, 0, 0, 0, 1, 1}, false, 1, rows, x.last(), 1, rows, y.last(), rows, 1};
}

std::string refuses_size(const NodeCall& call, const DeviceInfo&) {
  for (const Tensor* t : call.inputs) {
    if (t && t->elements() > INT32_MAX) return "the GPU counts at most 2^31 elements";
  }
  return call.output->elements() > INT32_MAX ? "the GPU counts at most 2^31 elements" : "";
}

std::string refuses_product(const NodeCall& call, const DeviceInfo& device) {
  const WeightEntry& w = *call.in(1).weight;
  if (w.codes_size > device.largest_binding() - kOffsetStep)
    return "the weight is larger than what a shader can see at once";
  if (call.output->last() > int64_t{kMostGroups} * kSide) return "the GPU takes fewer outputs";
  return refuses_size(call, device);
}

void Product::record(Work& work) const {
  const Tensor &x = call.in(0), &y = *call.output;
  const WeightEntry& weight = *call.in(1).weight;
  const Window& w = shape.window;
  const bool bytes = weight.is_integers(), to_codes = y.dtype == DType::u8;
  const View from = work.view(x), to = work.view(y), codes = work.view(call.in(1));
  const View sums =
      bytes ? work.recorder.view(work.bytes_of_file(weight.scales, weight.scales_size)) : from;
  const View scales = scale ? work.view(*scale) : from, biases = bias ? work.view(*bias) : from,
             others = residual ? work.view(*residual) : from;
  const struct {
    uint32_t height, width, channels, out_h, out_w, outputs, pixels;
    uint32_t kernel_h, kernel_w, stride_h, stride_w, top, left, dilation_h, dilation_w;
    uint32_t group_channels, group_outputs;
    uint32_t x_first, w_first, sums_first, scale_first, bias_first, residual_first, y_first;
    int32_t x_zero, out_zero, residual_zero;
    float inverse_out_scale, residual_scale;
  } push{word(shape.height),
         word(shape.width),
         word(shape.channels),
         word(shape.out_h),
         word(shape.out_w),
         word(shape.outputs),
         word(shape.pixels),
         word(w.kernel_h),
         word(w.kernel_w),
         word(w.stride_h),
         word(w.stride_w),
         word(w.top),
         word(w.left),
         word(w.dilation_h),
         word(w.dilation_w),
         word(shape.group_channels()),
         word(shape.group_outputs()),
         from.first,
         codes.first,
         sums.first,
         scales.first,
         biases.first,
         others.first,
         to.first,
         x_zero,
         out_zero,
         residual_zero,
         inverse_out_scale,
         residual_scale};
  const Constants constants{static_cast<uint32_t>(weight.kind) - 16,
                            static_cast<uint32_t>(call.params.activation),
                            bias != nullptr,
                            residual != nullptr,
                            shape.channels % 4 == 0,
                            to_codes,
                            shape.transposed,
                            is_point(shape)};
  const std::initializer_list<View> views{from, codes, sums, scales, biases, others, written(to)};
  // A thread writes whole words of codes.
  if (shape.groups == 1 && !(to_codes && shape.outputs % 4 != 0)) {
    const Groups groups{(push.pixels + kSide - 1) / kSide, (push.outputs + kSide - 1) / kSide};
    const bool by_words = bytes && work.device.features.integer_dot;
    work.recorder.dispatch(by_words ? "conv_tile_bytes" : "conv_tile", constants, views, push,
                           groups);
    return;
  }
  const auto results = static_cast<uint64_t>(y.elements());
  work.recorder.dispatch("conv_each", constants, views, push,
                         groups_for(to_codes ? (results + 3) / 4 : results, 256));
}

}  // namespace satchel::vulkan
