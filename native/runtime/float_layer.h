// A linear layer with weights in floats, over all threads: linear, and conv2d with a kernel of one pixel.
#pragma once

#include <algorithm>

#include "op.h"

namespace satchel {

inline constexpr int64_t kLayerRows = 126;  // of x in a piece of work
inline constexpr int64_t kLayerTiles = 4;

// y [m, w.rows] = activation(x [m, w.cols] * w + bias); bias may be null.
inline void float_layer(const float* x, int64_t m, const PackedMatrix& w, const float* bias, Activation activation,
                        float* y, const Workspace& work) {
  const auto kernel = w.encoding == MatrixEncoding::f32 ? work.kernels.linear_f32 : work.kernels.linear_f16;
  const int64_t tiles = (w.rows + kTileRows - 1) / kTileRows;
  const int64_t row_pieces = (m + kLayerRows - 1) / kLayerRows, tile_pieces = (tiles + kLayerTiles - 1) / kLayerTiles;
  // Pieces that share rows of x follow each other.
  const int64_t pieces = row_pieces * tile_pieces;
  work.pool.parallel_for(pieces, grain_for(pieces, work.pool.size(), 1), [&](int64_t begin, int64_t end, int) {
    for (int64_t piece = begin; piece < end;) {
      const int64_t row_piece = piece / tile_pieces, stop = std::min(end, (row_piece + 1) * tile_pieces);
      const int64_t first = row_piece * m / row_pieces, last = (row_piece + 1) * m / row_pieces;
      const int64_t tile = piece % tile_pieces * kLayerTiles, after = tile + (stop - piece) * kLayerTiles;
      kernel(x + first * w.cols, w.cols, last - first, w, bias, activation, tile, std::min(after, tiles),
             y + first * w.rows, w.rows);
      piece = stop;
    }
  });
}

}  // namespace satchel
