// Layers of unsigned codes and signed 8-bit weights with Arm's dot product instructions.

#include "lanes_neon.h"

// Of what is included, only the activations and the last steps of a result are used here.
#pragma GCC diagnostic ignored "-Wunused-function"

#include "elementwise.inl"
#include "activate.inl"
#include "linear_float.inl"
#include "integer_finish.inl"
#include "dots_dotprod.h"
#include "linear_i8.inl"

namespace satchel {

void dotprod_linear_i8(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                       const IntegerResult& result, int64_t tile_begin, int64_t tile_end) {
  linear_i8(x, ldx, m, w, result, tile_begin, tile_end);
}

void dotprod_conv_i8(const CodeWindows& x, const IntegerMatrix& w, const IntegerResult& result,
                     int64_t tile_begin, int64_t tile_end) {
  conv_i8(x, w, result, tile_begin, tile_end);
}

}  // namespace satchel
