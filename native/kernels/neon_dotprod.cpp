// NEON with the dot product instructions: the NEON table with these in it.

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

void dotprod_linear_k(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                      int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  const auto linear = w.encoding == MatrixEncoding::q4_k   ? linear_dot<Q4KDot>
                      : w.encoding == MatrixEncoding::q5_k ? linear_dot<Q5KDot>
                      : w.encoding == MatrixEncoding::q6_k ? linear_dot<Q6KDot>
                                                           : linear_dot<Q5Dot>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

}  // namespace satchel
