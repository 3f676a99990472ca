// rms_norm, layer_norm and softmax.
#include <algorithm>
#include <cmath>

#include "../op.h"

namespace satchel {

namespace {

size_t check_norm(NodeCall& call, int) {
  const Tensor& x = call.in(0);
  require_array(call, x, DType::f32);
  require_array(call, *call.output, DType::f32);
  require(x.rank >= 1 && same_shape(x, *call.output), call, "the output does not fit");
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    if (!call.has(i)) continue;
    require_array(call, call.in(i), DType::f32);
    require(call.in(i).rank == 1 && call.in(i).shape[0] == x.last(), call, "weight or bias does not fit");
  }
  call.params.number[0] = number_attribute(call, "eps");
  require(call.params.number[0] >= 0, call, "eps must not be negative");
  return 0;
}

void run_rms_norm(const NodeCall& call, const Workspace& work) {
  const Tensor& x = call.in(0);
  const int64_t cols = x.last(), rows = x.elements() / cols;
  work.pool.parallel_for(rows, grain_for(rows, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
    work.kernels.rms_norm(x.f32() + begin * cols, call.in(1).f32(), static_cast<float>(call.params.number[0]),
                          end - begin, cols, call.output->f32() + begin * cols);
  });
}

void run_layer_norm(const NodeCall& call, const Workspace& work) {
  const Tensor& x = call.in(0);
  const int64_t cols = x.last(), rows = x.elements() / cols;
  const float* bias = call.has(2) ? call.in(2).f32() : nullptr;
  work.pool.parallel_for(rows, grain_for(rows, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
    work.kernels.layer_norm(x.f32() + begin * cols, call.in(1).f32(), bias, static_cast<float>(call.params.number[0]),
                            end - begin, cols, call.output->f32() + begin * cols);
  });
}

size_t check_softmax(NodeCall& call, int) {
  const Tensor& x = call.in(0);
  require_array(call, x, DType::f32);
  require_array(call, *call.output, DType::f32);
  require(same_shape(x, *call.output), call, "the output does not fit");
  int64_t axis = int_attribute(call, "axis", -1);
  const auto rank = static_cast<int64_t>(x.rank);
  require(axis >= -rank && axis < rank, call, "there is no such axis");
  call.params.integer[0] = axis < 0 ? axis + rank : axis;
  return 0;
}

void run_softmax(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  const int64_t size = x.shape[axis], inner = x.product(axis + 1, x.rank), outer = x.product(0, axis);
  work.pool.parallel_for(outer * inner, grain_for(outer * inner, work.pool.size(), 4),
                         [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t base = item / inner * size * inner + item % inner;
      const float* from = x.f32() + base;
      float* to = y.f32() + base;
      float largest = from[0], total = 0.0f;
      for (int64_t i = 1; i < size; ++i) largest = std::max(largest, from[i * inner]);
      for (int64_t i = 0; i < size; ++i) total += to[i * inner] = std::exp(from[i * inner] - largest);
      for (int64_t i = 0; i < size; ++i) to[i * inner] /= total;
    }
  });
}

const OpDef kOps[] = {
    {"rms_norm", 2, 2, false, {"eps"}, check_norm, run_rms_norm},
    {"layer_norm", 2, 3, false, {"eps"}, check_norm, run_layer_norm},
    {"softmax", 1, 1, false, {"axis"}, check_softmax, run_softmax},
};

}  // namespace

std::span<const OpDef> normalize_ops() { return kOps; }

}  // namespace satchel
