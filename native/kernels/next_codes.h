// The codes that come next, asked for in shares while rows pass over the current ones: what reads them first
// would wait for memory with nothing else to do.
#pragma once

#include <immintrin.h>

#include "kernels.h"

namespace satchel {
namespace {

class NextCodes {
 public:
  // After columns [first, first + columns) of some tiles, which are multiplied in so many blocks.
  NextCodes(const PackedMatrix& w, int64_t tile, int64_t tiles, int64_t first, int64_t columns,
            int64_t blocks)
      : tiles_(tiles) {
    const int64_t columns_in_step = w.encoding == MatrixEncoding::q8 ? 4 : 8, end = first + columns;
    tile_bytes_ = w.cols / columns_in_step * 64;
    bytes_ = columns / columns_in_step * 64;
    share_ = (bytes_ / 64 + blocks - 1) / blocks * 64;
    codes_ = w.codes + (end < w.cols ? tile * tile_bytes_ + end / columns_in_step * 64
                                     : (tile + tiles) * tile_bytes_);
  }

  // So many bytes, while others are multiplied in so many blocks.
  NextCodes(const int8_t* codes, int64_t bytes, int64_t blocks)
      : codes_(reinterpret_cast<const uint8_t*>(codes)), tiles_(1), tile_bytes_(bytes), bytes_(bytes),
        share_((bytes / 64 + blocks - 1) / blocks * 64) {}

  // With each block.
  void ask() {
    for (const int64_t end = asked_ + share_ < bytes_ ? asked_ + share_ : bytes_; asked_ < end;
         asked_ += 64) {
      for (int64_t t = 0; t < tiles_; ++t) {
        _mm_prefetch(reinterpret_cast<const char*>(codes_ + t * tile_bytes_ + asked_), _MM_HINT_T1);
      }
    }
  }

 private:
  const uint8_t* codes_;  // of the next chunk's first tile
  int64_t tiles_, tile_bytes_, bytes_, share_, asked_ = 0;
};

}  // namespace
}  // namespace satchel
