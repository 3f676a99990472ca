// Values of 8 bits between layers of integers: made, read, looked up, added, multiplied, averaged;
// and sums, means and extremes of floats.
#include <algorithm>

#include "../runtime/broadcast.h"
#include "walk.h"

namespace satchel::vulkan {

namespace {

// --- quantize(x), dequantize(x), lookup(x, table), qadd(a, b), qmul(a, b) ---

enum CodesOp : uint32_t { kQuantize = 0, kDequantize, kLookup, kAdd, kMul };  // of codes.comp

bool is_pair(CodesOp op) { return op == kAdd || op == kMul; }

template <CodesOp kOp>
std::optional<Walk> walk_codes(const NodeCall& call) {
  const Tensor &y = *call.output, &a = call.in(0);
  int64_t steps_a[kMaxRank] = {}, steps_b[kMaxRank] = {};
  broadcast_strides(a, y, steps_a);
  if (is_pair(kOp)) broadcast_strides(call.in(1), y, steps_b);
  return walk(y.shape, y.rank, steps_a, steps_b);
}

template <CodesOp kOp>
std::string refuses_codes(const NodeCall& call, const DeviceInfo&) {
  return walk_codes<kOp>(call) ? "" : kTooManyDimensions;
}

template <CodesOp kOp>
void record_codes(const NodeCall& call, Work& work) {
  const Tensor& y = *call.output;
  const View a = work.view(call.in(0)), b = call.has(1) ? work.view(call.in(1)) : a,
             to = work.view(y);
  // Codes that are made have the step that codes that are read have.
  const double* scales = call.params.number;
  const int64_t* zeros = call.params.integer;
  const size_t out = is_pair(kOp) ? 2 : 0;
  const struct {
    Walk over;
    uint32_t count, a_first, b_first, y_first;
    float a_scale, b_scale, inverse_out_scale;
    int32_t a_zero, b_zero, out_zero;
    uint32_t a_offset;
  } push{*walk_codes<kOp>(call),
         word(y.elements()),
         a.first,
         b.first,
         to.first,
         static_cast<float>(scales[0]),
         static_cast<float>(scales[1]),
         kOp == kLookup ? 0.0f : 1.0f / static_cast<float>(scales[out]),
         static_cast<int32_t>(zeros[0]),
         static_cast<int32_t>(zeros[1]),
         static_cast<int32_t>(zeros[out]),
         0};
  const Constants constants{kOp, static_cast<uint32_t>(call.params.activation)};
  work.recorder.dispatch("codes", constants, {a, b, written(to)}, push,
                         groups_for((push.count + 3) / 4, 256));
}

// --- reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod and qmean(x) ---

enum ReduceOp : uint32_t { kSum = 0, kMean, kMost, kLeast, kProduct, kMeanCode };  // of reduce.comp

int64_t mask_of(const NodeCall& call, ReduceOp op) {
  return call.params.integer[op == kMeanCode ? 4 : 0];
}

// The axes that are reduced, or those that are not.
std::optional<Walk> walk_axes(const NodeCall& call, int64_t mask, bool reduced) {
  const Tensor& x = call.in(0);
  int64_t shape[kMaxRank] = {}, steps[kMaxRank] = {};
  size_t rank = 0;
  for (size_t i = 0; i < x.rank; ++i) {
    if (static_cast<bool>(mask >> i & 1) != reduced) continue;
    shape[rank] = x.shape[i], steps[rank] = x.product(i + 1, x.rank);
    ++rank;
  }
  return walk(shape, rank, steps, steps);
}

template <ReduceOp kOp>
std::string refuses_reduce(const NodeCall& call, const DeviceInfo&) {
  if (kOp != kMeanCode && call.output->dtype != DType::f32) return "the GPU computes in f32 only";
  const int64_t mask = mask_of(call, kOp);
  if (!walk_axes(call, mask, false) || !walk_axes(call, mask, true)) return kTooManyDimensions;
  constexpr int64_t most_codes = int64_t{1} << 23;  // whose sum 32 bits hold
  if (kOp == kMeanCode &&
      call.in(0).elements() / std::max<int64_t>(call.output->elements(), 1) >= most_codes)
    return "the GPU adds up fewer codes";
  return {};
}

template <ReduceOp kOp>
void record_reduce(const NodeCall& call, Work& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const int64_t mask = mask_of(call, kOp), count = x.elements() / y.elements();
  const Walk kept = *walk_axes(call, mask, false), reduced = *walk_axes(call, mask, true);
  const View from = work.view(x), to = work.view(y);
  struct {
    uint32_t kept_shape[4], kept_steps[4], shape[4], steps[4];
    uint32_t count, reduced, x_first, y_first;
    float factor, inverse_out_scale;
    int32_t x_zero, out_zero;
  } push{{}, {}, {}, {}, word(y.elements()), word(count), from.first, to.first, 0, 0, 0, 0};
  std::copy_n(kept.shape, 4, push.kept_shape);
  std::copy_n(kept.a, 4, push.kept_steps);
  std::copy_n(reduced.shape, 4, push.shape);
  std::copy_n(reduced.a, 4, push.steps);
  if (kOp == kMeanCode) {
    push.factor = static_cast<float>(call.params.number[0]) / static_cast<float>(count);
    push.inverse_out_scale = 1.0f / static_cast<float>(call.params.number[2]);
    push.x_zero = static_cast<int32_t>(call.params.integer[0]);
    push.out_zero = static_cast<int32_t>(call.params.integer[2]);
  }
  constexpr uint32_t results = 8;  // of a workgroup
  work.recorder.dispatch("reduce", {kOp}, {from, written(to)}, push,
                         groups_for(push.count, results));
}

const VulkanOp kOps[] = {
    {"quantize", refuses_codes<kQuantize>, record_codes<kQuantize>, nullptr, nullptr, true},
    {"dequantize", refuses_codes<kDequantize>, record_codes<kDequantize>, nullptr, nullptr, true},
    {"lookup", refuses_codes<kLookup>, record_codes<kLookup>, nullptr, nullptr, true},
    {"qadd", refuses_codes<kAdd>, record_codes<kAdd>, nullptr, nullptr, true},
    {"qmul", refuses_codes<kMul>, record_codes<kMul>, nullptr, nullptr, true},
    {"qmean", refuses_reduce<kMeanCode>, record_reduce<kMeanCode>, nullptr, nullptr, true},
    {"reduce_sum", refuses_reduce<kSum>, record_reduce<kSum>, nullptr, nullptr, true},
    {"reduce_mean", refuses_reduce<kMean>, record_reduce<kMean>, nullptr, nullptr, true},
    {"reduce_max", refuses_reduce<kMost>, record_reduce<kMost>, nullptr, nullptr, true},
    {"reduce_min", refuses_reduce<kLeast>, record_reduce<kLeast>, nullptr, nullptr, true},
    {"reduce_prod", refuses_reduce<kProduct>, record_reduce<kProduct>, nullptr, nullptr, true},
};

}  // namespace

std::span<const VulkanOp> code_ops() { return kOps; }

}  // namespace satchel::vulkan
