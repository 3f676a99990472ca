// A linear layer with weights in floats, over all threads: linear, and conv2d with a kernel of one
// pixel.
#pragma once

#include "layer_pieces.h"

namespace satchel {

// The same for the rows that begin so many values further.
inline FloatFinish rows_from(const FloatFinish& finish, int64_t values) {
  return {finish.activation, finish.residual ? finish.residual + values : nullptr};
}

// y [m, w.rows] = activation(x [m, w.cols] * w + bias + residual [m, w.rows]); bias may be null,
// and rows of x are ldx apart.
inline void float_layer(const float* x, int64_t ldx, int64_t m, const PackedMatrix& w,
                        const float* bias, FloatFinish finish, float* y, const Workspace& work) {
  const bool wide = w.encoding == MatrixEncoding::f32;
  const auto kernel = wide ? work.kernels.linear_f32 : work.kernels.linear_f16;
  const int64_t tiles = (w.rows + kTileRows - 1) / kTileRows;
  const int64_t weights = w.rows * w.cols;
  const bool dear = work.kernels.weights_are_dear;
  const LayerPieces pieces(m, tiles, (w.rows + w.cols) * 4, weights, weights * (wide ? 4 : 2),
                           dear ? 252 : 126, work.pool.size(), dear);
  pieces.run(work.pool, [&](int64_t first, int64_t last, int64_t tile, int64_t after, int64_t) {
    kernel(x + first * ldx, ldx, last - first, w, bias, rows_from(finish, first * w.rows), tile,
           after, y + first * w.rows, w.rows);
  });
}

}  // namespace satchel
