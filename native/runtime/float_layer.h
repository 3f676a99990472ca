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
// rows of x are ldx apart, and those of y and of the residual ldy.
inline void float_layer(const float* x, int64_t ldx, int64_t m, const PackedMatrix& w,
                        const float* bias, FloatFinish finish, float* y, int64_t ldy,
                        const Workspace& work) {
  const bool wide = w.encoding == MatrixEncoding::f32;
  const auto kernel = wide ? work.kernels.linear_f32 : work.kernels.linear_f16;
  const int64_t tiles = (w.rows + kTileRows - 1) / kTileRows;
  const int64_t weights = w.rows * w.cols;
  const LayerPieces::Limits limits = work.kernels.weights_are_dear
                                         ? LayerPieces::Limits{252, 252, 1}
                                         : LayerPieces::Limits{126, 252, 2};
  const LayerPieces pieces(m, tiles, (w.rows + w.cols) * 4, weights, weights * (wide ? 4 : 2),
                           limits, work.pool.size());
  pieces.run(work.pool, [&](int64_t first, int64_t last, int64_t tile, int64_t after, int64_t) {
    kernel(x + first * ldx, ldx, last - first, w, bias, rows_from(finish, first * ldy), tile, after,
           y + first * ldy, ldy);
  });
}

// The linear op with such weights. What can be one piece of work with it, each with the same bits
// as alone: a layer that reads nothing but its result, where that saves a copy, and an addition of
// something else.
size_t float_scratch(const NodeCall& call);
bool joins_floats(std::span<const NodeCall> calls, const NodeCall& next);
void run_floats(const NodeCall& first, const Workspace& work);

}  // namespace satchel
