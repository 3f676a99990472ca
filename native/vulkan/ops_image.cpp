// Convolutions, layers of integers and pools, channels-last.
#include "../runtime/integer_layer.h"
#include "conv_call.h"

namespace satchel::vulkan {

namespace {

// --- conv2d(x, weight, bias?, residual?), conv_transpose2d(x, weight, bias?) ---

template <bool kTransposed>
std::string refuses_conv(const NodeCall& call, const DeviceInfo& device) {
  return refuses_product(call, device);
}

template <bool kTransposed>
void record_conv(const NodeCall& call, Work& work) {
  Product product(call, conv_shape(call, kTransposed));
  if (call.has(2)) product.bias = &call.in(2);
  if (call.has(3)) product.residual = &call.in(3);
  product.record(work);
}

// --- qconv2d and qlinear(x, weight, scale, bias?, residual?) ---

void record_integers(const NodeCall& call, Work& work, const ConvShape& shape) {
  using namespace integer_layer;
  Product product(call, shape);
  product.scale = &call.in(kScale);
  if (call.has(kBias)) product.bias = &call.in(kBias);
  if (call.has(kResidual)) product.residual = &call.in(kResidual);
  product.x_zero = static_cast<int32_t>(call.params.integer[kXZero]);
  product.out_zero = static_cast<int32_t>(call.params.integer[kOutZero]);
  product.residual_zero = static_cast<int32_t>(call.params.integer[kResidualZero]);
  product.inverse_out_scale = static_cast<float>(call.params.number[kInverseOutScale]);
  product.residual_scale = static_cast<float>(call.params.number[kResidualScale]);
  product.record(work);
}

void record_qconv(const NodeCall& call, Work& work) {
  record_integers(call, work, conv_shape(call));
}

void record_qlinear(const NodeCall& call, Work& work) {
  record_integers(call, work, shape_of_rows(call));
}

// --- max_pool2d(x), avg_pool2d(x) ---

enum PoolKind : uint32_t { kLargest = 0, kLargestCode = 1, kMean = 2 };  // of pool.comp

std::string refuses_pool(const NodeCall& call, const DeviceInfo& device) {
  return refuses_size(call, device);
}

template <bool kIsMean>
void record_pool(const NodeCall& call, Work& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const Window w = window_of(call);
  const View from = work.view(x), to = work.view(y);
  const bool codes = y.dtype == DType::u8;
  const struct {
    uint32_t count, height, width, channels, out_h, out_w;
    uint32_t kernel_h, kernel_w, stride_h, stride_w, top, left, bottom, right;
    uint32_t dilation_h, dilation_w, divisor, counts_padding, x_first, y_first;
  } push{word(y.elements()),
         word(x.shape[1]),
         word(x.shape[2]),
         word(x.shape[3]),
         word(y.shape[1]),
         word(y.shape[2]),
         word(w.kernel_h),
         word(w.kernel_w),
         word(w.stride_h),
         word(w.stride_w),
         word(w.top),
         word(w.left),
         word(w.bottom),
         word(w.right),
         word(w.dilation_h),
         word(w.dilation_w),
         kIsMean ? word(call.params.integer[kAfterWindow + 1]) : 0,
         kIsMean ? word(call.params.integer[kAfterWindow]) : 0,
         from.first,
         to.first};
  const PoolKind kind = kIsMean ? kMean : codes ? kLargestCode : kLargest;
  work.recorder.dispatch("pool", {kind}, {from, written(to)}, push,
                         groups_for(codes ? (push.count + 3) / 4 : push.count, 256));
}

const VulkanOp kOps[] = {
    {"conv2d", refuses_conv<false>, record_conv<false>},
    {"conv_transpose2d", refuses_conv<true>, record_conv<true>},
    {"qconv2d", refuses_product, record_qconv, nullptr, nullptr, true},
    {"qlinear", refuses_product, record_qlinear, nullptr, nullptr, true},
    {"max_pool2d", refuses_pool, record_pool<false>, nullptr, nullptr, true},
    {"avg_pool2d", refuses_pool, record_pool<true>},
};

}  // namespace

std::span<const VulkanOp> image_ops() { return kOps; }

}  // namespace satchel::vulkan
