// The codes that come next, asked for in shares while rows pass over the current ones: what reads
// them first would wait for memory with nothing else to do.
#pragma once

#include <immintrin.h>

#include "kernels.h"

namespace satchel {
namespace {

class NextCodes {
 public:
  // Columns [first, first + columns) of some tiles, while others are multiplied in so many blocks.
  NextCodes(const PackedMatrix& w, int64_t tile, int64_t tiles, int64_t first, int64_t columns,
            int64_t blocks)
      : NextCodes(w.codes + (tile * w.cols + first) * bytes_in_column(w),
                  columns * bytes_in_column(w), blocks) {
    tiles_ = tiles, tile_bytes_ = w.cols * bytes_in_column(w);
  }

  // As many columns after [first, first + columns): of the same tiles, or else of those behind
  // them.
  static NextCodes after(const PackedMatrix& w, int64_t tile, int64_t tiles, int64_t first,
                         int64_t columns, int64_t blocks) {
    const bool same_tiles = first + columns < w.cols;
    return {w,       same_tiles ? tile : tile + tiles,
            tiles,   same_tiles ? first + columns : 0,
            columns, blocks};
  }

  // So many bytes.
  NextCodes(const void* codes, int64_t bytes, int64_t blocks)
      : codes_(static_cast<const uint8_t*>(codes)),
        bytes_(bytes),
        share_((bytes / 64 + blocks - 1) / blocks * 64) {}

  // With each block.
  void ask() {
    const int64_t begin = asked_, end = begin + share_ < bytes_ ? begin + share_ : bytes_;
    const uint8_t* codes = codes_;
    for (int64_t t = 0; t < tiles_; ++t, codes += tile_bytes_) {
      for (int64_t at = begin; at < end; at += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(codes + at), _MM_HINT_T1);
      }
    }
    asked_ = end;
  }

 private:
  const uint8_t* codes_;  // of the first tile
  int64_t tiles_ = 1, tile_bytes_ = 0, bytes_, share_, asked_ = 0;

  static int64_t bytes_in_column(const PackedMatrix& w) { return column_bytes(w.encoding); }
};

}  // namespace
}  // namespace satchel
