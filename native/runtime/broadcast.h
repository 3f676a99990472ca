// Numpy's broadcasting for ops of two or three operands.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "op.h"

namespace satchel {

// The output's shape must be that which the operands broadcast to.
inline void require_broadcast(const NodeCall& call, std::initializer_list<const Tensor*> operands) {
  const Tensor& y = *call.output;
  size_t rank = 0;
  for (const Tensor* t : operands) rank = std::max(rank, t->rank);
  require(y.rank == rank, call, "the output's rank does not fit");
  for (size_t i = 0; i < y.rank; ++i) {
    int64_t size = 1;
    for (const Tensor* t : operands) {
      const int64_t own = i < t->rank ? t->shape[t->rank - 1 - i] : 1;
      require(own == size || own == 1 || size == 1, call, "the shapes do not broadcast");
      size = std::max(size, own);
    }
    require(y.shape[y.rank - 1 - i] == size, call, "the output does not fit");
  }
}

// Strides of an operand along the output's dimensions: 0 where it is broadcast.
inline void broadcast_strides(const Tensor& t, const Tensor& y, int64_t* strides) {
  int64_t stride = 1;
  for (size_t i = 0; i < y.rank; ++i) {
    const int64_t own = i < t.rank ? t.shape[t.rank - 1 - i] : 1;
    strides[y.rank - 1 - i] = own == 1 ? 0 : stride;
    stride *= own;
  }
}

// Where row `row` (along the last dimension) of the output starts in an operand with these strides.
inline int64_t row_offset(const Tensor& y, const int64_t* strides, int64_t row) {
  int64_t at = 0;
  for (size_t i = y.rank - (y.rank > 0); i-- > 0;) {
    at += row % y.shape[i] * strides[i];
    row /= y.shape[i];
  }
  return at;
}

}  // namespace satchel
