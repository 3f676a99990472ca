// How a layer's rows and the tiles of its weight are shared out among threads.
#pragma once

#include <algorithm>

#include "cpu_op.h"

namespace satchel {

// Calls work(first tile, tile after the last, tile after the last of the thread's own, thread) for
// pieces of a weight's tiles, on all threads.
template <typename Work>
void share_tiles(ThreadPool& pool, int64_t tiles, const Work& work) {
  constexpr int64_t kPieceTiles = 4;
  const int64_t pieces = (tiles + kPieceTiles - 1) / kPieceTiles;
  pool.parallel_for(pieces, grain_for(pieces, pool.size(), 1),
                    [&](int64_t begin, int64_t end, int thread) {
                      work(begin * tiles / pieces, end * tiles / pieces,
                           pool.share_end(end - 1, pieces) * tiles / pieces, thread);
                    });
}

// Rows are shared out where they can be, because a thread then finds what it has written for the
// layer before in its own cache; the weight is read by all. Where the weight is much larger than
// what the layer reads and writes, its tiles are shared out.
struct LayerPieces {
  static constexpr int64_t kBlockRows = 14;  // that the largest kernels compute together

  int64_t m, tiles, piece_rows;
  enum class Split { none, rows, tiles } split;

  // What suits a kernel: the most rows in a piece (whole blocks), which stay in the cache while the
  // tiles pass, and where those are shared out; and how many times larger than what the layer reads
  // and writes a weight is whose tiles are.
  struct Limits {
    int64_t rows, tile_rows, larger;
  };

  LayerPieces(int64_t rows, int64_t n_tiles, int64_t row_bytes, int64_t weights,
              int64_t weight_bytes, const Limits& limits, int threads)
      : m(rows), tiles(n_tiles), piece_rows(equal_pieces(m, limits.rows, 1)), split(Split::none) {
    const double products = static_cast<double>(m) * static_cast<double>(weights);
    if (threads == 1 || stays_on_one_thread(m, products)) return;
    const int64_t blocks = (m + kBlockRows - 1) / kBlockRows;
    split = blocks < threads || weight_bytes > limits.larger * m * row_bytes ? Split::tiles
                                                                             : Split::rows;
    if (split == Split::tiles) piece_rows = equal_pieces(m, limits.tile_rows, 1);
    // Two pieces or more for each thread, so that one can help another.
    if (split == Split::rows)
      piece_rows = equal_pieces((m + threads - 1) / threads, limits.rows, 2);
  }

  // Calls work(first row, row after the last, first tile, tile after the last, tile after the last
  // of the thread's own) for all pieces, on all threads.
  template <typename Work>
  void run(ThreadPool& pool, const Work& work) const {
    const auto all_rows = [&](int64_t tile, int64_t after, int64_t own, int) {
      for (int64_t row = 0; row < m; row += piece_rows)
        work(row, std::min(row + piece_rows, m), tile, after, own);
    };
    if (split == Split::none) return all_rows(0, tiles, tiles, 0);
    if (split == Split::rows) {
      return pool.parallel_for(m, piece_rows, [&](int64_t begin, int64_t end, int) {
        work(begin, end, 0, tiles, tiles);
      });
    }
    share_tiles(pool, tiles, all_rows);
  }

 private:
  // The rows in each of so few pieces that none has more than `most`, in whole blocks.
  static int64_t equal_pieces(int64_t rows, int64_t most, int64_t fewest) {
    const int64_t pieces = std::max(fewest, (rows + most - 1) / most);
    return std::max<int64_t>(1, ((rows + pieces - 1) / pieces + kBlockRows - 1) / kBlockRows) *
           kBlockRows;
  }
};

}  // namespace satchel
