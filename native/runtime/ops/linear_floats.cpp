// Linear layers with weights in floats, together with what follows them: a layer that reads
// nothing but the result, and an addition.
#include <algorithm>
#include <optional>
#include <string_view>

#include "../errors.h"
#include "../float_layer.h"
#include "../joined_addition.h"
#include "../quantized_layer.h"

namespace satchel {

namespace {

int64_t rows_of(const NodeCall& layer) { return layer.in(0).product(0, layer.in(0).rank - 1); }
int64_t cols_of(const NodeCall& layer) { return layer.in(0).last(); }

// Rows a page apart have the same places in a first-level cache, which has not enough for a block
// of them: a layer reads them from rows that are a cache line longer. The floats from one row to
// the next.
int64_t stride_of(const NodeCall& layer) {
  const int64_t cols = cols_of(layer);
  return cols % 1024 == 0 && rows_of(layer) >= 28 ? cols + 16 : cols;
}
bool reads_longer_rows(const NodeCall& layer) { return stride_of(layer) != cols_of(layer); }

bool is_float_layer(const NodeCall& call) {
  return std::string_view(call.info->op->name) == "linear" && !digits_of(call);
}

void copy_rows(const float* from, int64_t rows, int64_t cols, int64_t stride, float* to,
               const Workspace& work) {
  work.pool.parallel_for(rows, grain_for(rows, work.pool.size(), 4),
                         [&](int64_t begin, int64_t end, int) {
                           for (int64_t row = begin; row < end; ++row)
                             std::copy_n(from + row * cols, cols, to + row * stride);
                         });
}

void multiply(const NodeCall& layer, const float* x, FloatFinish finish, float* y, int64_t ldy,
              const Workspace& work) {
  const float* bias = layer.has(2) ? layer.in(2).f32() : nullptr;
  float_layer(x, stride_of(layer), rows_of(layer), layer.in(1).weight->matrix(), bias, finish, y,
              ldy, work);
}

}  // namespace

size_t float_scratch(const NodeCall& call) {
  if (!reads_longer_rows(call)) return 0;
  const auto bytes = checked_product(static_cast<uint64_t>(rows_of(call)),
                                     static_cast<uint64_t>(stride_of(call)) * sizeof(float));
  require(bytes.has_value(), call, "x is too large");
  return static_cast<size_t>(*bytes);
}

bool joins_floats(std::span<const NodeCall> calls, const NodeCall& next) {
  const NodeCall& layer = calls.back();
  if (!is_float_layer(layer)) return false;
  if (is_float_layer(next)) {
    // The first layer writes the longer rows, which would else be a copy of what it has written.
    return calls.size() == 1 && next.in(0).source == layer.output && layer.output->uses == 1 &&
           same_shape(next.in(0), *layer.output) && reads_longer_rows(next) &&
           !reads_longer_rows(layer);
  }
  if (layer.params.activation != Activation::none || !adds_to(layer, next)) return false;
  return reads_longer_rows(layer) || are_apart(layer.in(0), *next.output);
}

void run_floats(const NodeCall& call, const Workspace& work) {
  std::span<const NodeCall> calls(&call, call.joined + 1);
  const NodeCall* addition = is_float_layer(calls.back()) ? nullptr : &calls.back();
  if (addition) calls = calls.first(calls.size() - 1);
  const NodeCall& last = calls.back();
  const float* x = call.in(0).f32();
  auto* longer = reinterpret_cast<float*>(work.scratch);
  if (calls.size() > 1) {
    multiply(call, x, call.params.activation, longer, stride_of(last), work);
    x = longer;
  } else if (reads_longer_rows(last)) {
    copy_rows(x, rows_of(last), cols_of(last), stride_of(last), longer, work);
    x = longer;
  }
  const FloatFinish finish(last.params.activation,
                           addition ? added_to(last, *addition).f32() : nullptr);
  const Tensor& y = addition ? *addition->output : *last.output;
  multiply(last, x, finish, y.f32(), last.output->last(), work);
}

}  // namespace satchel
