// A linear layer with weights in floats, over all threads: linear, and conv2d with a kernel of one pixel.
#pragma once

#include "layer_pieces.h"

namespace satchel {

// y [m, w.rows] = activation(x [m, w.cols] * w + bias); bias may be null.
inline void float_layer(const float* x, int64_t m, const PackedMatrix& w, const float* bias, Activation activation,
                        float* y, const Workspace& work) {
  const bool wide = w.encoding == MatrixEncoding::f32;
  const auto kernel = wide ? work.kernels.linear_f32 : work.kernels.linear_f16;
  const int64_t tiles = (w.rows + kTileRows - 1) / kTileRows;
  const int64_t weights = w.rows * w.cols;
  const LayerPieces pieces(m, tiles, (w.rows + w.cols) * 4, weights, weights * (wide ? 4 : 2), 126, work.pool.size());
  pieces.run(work.pool, [&](int64_t first, int64_t last, int64_t tile, int64_t after) {
    kernel(x + first * w.cols, w.cols, last - first, w, bias, activation, tile, after, y + first * w.rows, w.rows);
  });
}

}  // namespace satchel
