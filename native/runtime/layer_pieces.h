// How a layer's rows and the tiles of its weight are shared out among threads.
#pragma once

#include <algorithm>

#include "op.h"

namespace satchel {

// Rows are shared out where they can be, because a thread then finds what it has written for the layer
// before in its own cache; the weight is read by all. Where the weight is much larger than what the
// layer reads and writes, its tiles are shared out.
struct LayerPieces {
  static constexpr int64_t kBlockRows = 14;  // that the largest kernels compute together
  static constexpr int64_t kPieceTiles = 4;

  int64_t m, tiles, row_pieces, tile_pieces;

  // Rows in a piece are at most `most_rows`, so that they stay in the cache while the tiles pass.
  LayerPieces(int64_t rows, int64_t n_tiles, int64_t row_bytes, int64_t weights, int64_t weight_bytes,
              int64_t most_rows, int threads)
      : m(rows), tiles(n_tiles), row_pieces((m + most_rows - 1) / most_rows), tile_pieces(1) {
    const double products = static_cast<double>(m) * static_cast<double>(weights);
    if (threads == 1 || stays_on_one_thread(m, products)) return;
    const int64_t blocks = (m + kBlockRows - 1) / kBlockRows;
    if (blocks < threads || weight_bytes > 4 * m * row_bytes) {
      tile_pieces = (tiles + kPieceTiles - 1) / kPieceTiles;
    } else {
      row_pieces = std::max(row_pieces, std::min<int64_t>(blocks, 2 * threads));
    }
  }

  // Calls work(first row, row after the last, first tile, tile after the last) for all pieces, on all threads.
  template <typename Work>
  void run(ThreadPool& pool, const Work& work) const {
    // Pieces that share rows follow each other.
    const int64_t pieces = row_pieces * tile_pieces;
    pool.parallel_for(pieces, grain_for(pieces, pool.size(), 1), [&](int64_t begin, int64_t end, int) {
      for (int64_t piece = begin; piece < end;) {
        const int64_t row_piece = piece / tile_pieces, stop = std::min(end, (row_piece + 1) * tile_pieces);
        const int64_t tile = piece % tile_pieces * tiles / tile_pieces;
        const int64_t after = ((stop - 1) % tile_pieces + 1) * tiles / tile_pieces;
        work(row_piece * m / row_pieces, (row_piece + 1) * m / row_pieces, tile, after);
        piece = stop;
      }
    });
  }
};

}  // namespace satchel
