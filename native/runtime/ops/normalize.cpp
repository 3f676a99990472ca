// rms_norm, layer_norm and softmax.
#include <algorithm>
#include <cmath>
#include <limits>

#include "../cpu_op.h"
#include "../quantized_layer.h"

namespace satchel {

namespace {

void check_norm_of(NodeCall& call, DType out) {
  const Tensor& x = call.in(0);
  require_array(call, x, DType::f32);
  require_array(call, *call.output, out);
  require(x.rank >= 1 && same_shape(x, *call.output), call, "the output does not fit");
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    if (!call.has(i)) continue;
    require_array(call, call.in(i), DType::f32);
    require(call.in(i).rank == 1 && call.in(i).shape[0] == x.last(), call,
            "weight or bias does not fit");
  }
  call.params.number[0] = number_attribute(call, "eps");
  require(call.params.number[0] >= 0, call, "eps must not be negative");
}

void check_rms_norm(NodeCall& call) { check_norm_of(call, DType::f32); }

// With an out_scale, the result is rounded to codes.
void check_layer_norm(NodeCall& call) {
  const double scale = number_attribute(call, "out_scale", 0.0);
  const int64_t zero = int_attribute(call, "out_zero", 0);
  require(scale == 0.0 || (scale >= 1e-30 && scale <= 1e30), call, "the scale is out of range");
  require(zero >= 0 && zero <= 255, call, "the zero point is not a code");
  check_norm_of(call, scale == 0.0 ? DType::f32 : DType::u8);
  call.params.number[1] = scale;
  call.params.integer[0] = zero;
}

void run_rms_norm(const NodeCall& call, const Workspace& work) {
  if (call.joined) return run_joined(call, work);
  const Tensor& x = call.in(0);
  const int64_t cols = x.last(), rows = x.elements() / cols;
  work.pool.parallel_for(
      rows, grain_for(rows, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
        work.kernels.rms_norm(x.f32() + begin * cols, call.in(1).f32(),
                              static_cast<float>(call.params.number[0]), end - begin, cols,
                              call.output->f32() + begin * cols);
      });
}

void run_layer_norm(const NodeCall& call, const Workspace& work) {
  const Tensor& x = call.in(0);
  const int64_t cols = x.last(), rows = x.elements() / cols;
  const float* bias = call.has(2) ? call.in(2).f32() : nullptr;
  const CodeStep8 step{static_cast<float>(call.params.number[1]),
                       static_cast<int32_t>(call.params.integer[0])};
  const auto eps = static_cast<float>(call.params.number[0]);
  work.pool.parallel_for(
      rows, grain_for(rows, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
        const float *from = x.f32() + begin * cols, *weight = call.in(1).f32();
        if (call.output->dtype == DType::u8) {
          work.kernels.layer_norm_codes(from, weight, bias, eps, end - begin, cols, step,
                                        call.output->data + begin * cols);
        } else {
          work.kernels.layer_norm(from, weight, bias, eps, end - begin, cols,
                                  call.output->f32() + begin * cols);
        }
      });
}

void check_softmax(NodeCall& call) {
  const Tensor& x = call.in(0);
  require_array(call, x, DType::f32);
  require_array(call, *call.output, DType::f32);
  require(same_shape(x, *call.output), call, "the output does not fit");
  int64_t axis = int_attribute(call, "axis", -1);
  const auto rank = static_cast<int64_t>(x.rank);
  require(axis >= -rank && axis < rank, call, "there is no such axis");
  call.params.integer[0] = axis < 0 ? axis + rank : axis;
}

void run_softmax(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  const int64_t size = x.shape[axis], inner = x.product(axis + 1, x.rank),
                outer = x.product(0, axis);
  work.pool.parallel_for(outer * inner, grain_for(outer * inner, work.pool.size(), 4),
                         [&](int64_t begin, int64_t end, int) {
                           for (int64_t item = begin; item < end; ++item) {
                             const int64_t base = item / inner * size * inner + item % inner;
                             const float* from = x.f32() + base;
                             float* to = y.f32() + base;
                             if (inner == 1) {
                               SoftmaxState state{-std::numeric_limits<float>::infinity(), 0.0f,
                                                  0.0f};
                               std::copy_n(from, size, to);
                               work.kernels.softmax_block(to, size, 1.0f, nullptr, &state);
                               const float inverse = 1.0f / state.total;
                               for (int64_t i = 0; i < size; ++i) to[i] *= inverse;
                               continue;
                             }
                             float largest = from[0], total = 0.0f;
                             for (int64_t i = 1; i < size; ++i)
                               largest = std::max(largest, from[i * inner]);
                             for (int64_t i = 0; i < size; ++i)
                               total += to[i * inner] = std::exp(from[i * inner] - largest);
                             for (int64_t i = 0; i < size; ++i) to[i * inner] /= total;
                           }
                         });
}

const OpDef kOps[] = {
    {{"rms_norm", 2, 2, false, {"eps"}, check_rms_norm}, {run_rms_norm, nullptr, joins_layers}},
    {{"layer_norm", 2, 3, false, {"eps", "out_scale", "out_zero"}, check_layer_norm},
     {run_layer_norm}},
    {{"softmax", 1, 1, false, {"axis"}, check_softmax}, {run_softmax}},
};

}  // namespace

std::span<const OpDef> normalize_ops() { return kOps; }

}  // namespace satchel
