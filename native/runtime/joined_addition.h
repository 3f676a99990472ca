// An addition of something else to a layer's result in floats, which is done along with the layer.
#pragma once

#include <string_view>

#include "cpu_op.h"

namespace satchel {

inline bool are_apart(const Tensor& a, const Tensor& b) {
  // As numbers: where only shapes are checked, nothing has a place yet.
  const auto begin = [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data); };
  const auto end = [&](const Tensor& t) {
    return begin(t) + static_cast<size_t>(t.elements()) * dtype_size(t.dtype);
  };
  return end(a) <= begin(b) || end(b) <= begin(a);
}

// What an addition adds to the result of a layer.
inline const Tensor& added_to(const NodeCall& layer, const NodeCall& addition) {
  return addition.in(addition.in(0).source == layer.output ? 1 : 0);
}

// Whether `next` is an addition that is all that becomes of the layer's result. The sum may have
// the place of what the layer reads; but not, to be joined, that of what is added.
inline bool adds_to(const NodeCall& layer, const NodeCall& next) {
  if (std::string_view(next.info->op->name) != "add") return false;
  const Tensor &result = *layer.output, &a = next.in(0), &b = next.in(1), &sum = *next.output;
  if (result.dtype != DType::f32 || result.uses != 1 || a.dtype != DType::f32) return false;
  if ((a.source == &result) == (b.source == &result) || !same_shape(a, b) || !same_shape(a, sum))
    return false;
  return result.elements() == sum.elements() && are_apart(added_to(layer, next), sum);
}

}  // namespace satchel
