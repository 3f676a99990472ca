// NEON with the dot product instructions: the NEON table with these two in it.

#include "lanes_neon.h"

#include "linear_neon.inl"
#include "linear_dot.inl"

namespace satchel {

void dotprod_linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                       int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  const auto linear =
      w.encoding == MatrixEncoding::q4_steps ? linear_dot<Q4StepsDot> : linear_dot<Q4Dot>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

void dotprod_linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                       int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  linear_dot<Q8Dot>(x, w, bias, tile_begin, tile_end, y, ldy);
}

}  // namespace satchel
