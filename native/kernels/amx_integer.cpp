// AMX for layers of unsigned codes and signed 8-bit weights: 16 × 16 outputs and 64 columns per
// instruction. Weights and codes are read where they lie; only the last columns of the weights and of
// the last rows, where they are no full step, are copied and filled up with zeros.

#include <algorithm>

#include "amx_tiles.h"
#include "next_codes.h"

// Of what is included, only the activations and the last steps of a result are used here.
#pragma GCC diagnostic ignored "-Wunused-function"

#include "elementwise.inl"
#include "activate.inl"
#include "linear_float.inl"
#include "integer_finish.inl"

namespace satchel {
namespace {

constexpr int64_t kStepColumns = 64;
constexpr int64_t kStepBytes = kStepColumns * kTileRows;  // of weights
constexpr int64_t kBlockRows = 2 * kTileRows;
// Tiles of weights that a block of rows meets one pair after the other: as many as stay in the first-level
// cache, so that the rows come there once, and lines of results are written whole.
constexpr int64_t kMostStripTiles = 8, kStripBytes = 24 << 10;

struct alignas(64) Buffers {
  uint8_t a[2][kTileRows * kStepColumns];  // the last columns of two tiles of rows
  int8_t b[kMostStripTiles][kStepBytes];   // the last steps of the strip's tiles
  int32_t c[4][kTileRows * 16];            // [2 * row tile + column tile][16][16]
};

// Two tiles of rows, of which the second may be the first again, and what becomes of their sums.
struct Block {
  int64_t rows[2];
  int row_tiles;
  int64_t tile;
  int tiles;
  int64_t strip;  // the strip's first tile
};

// The last rows' last columns, where there may be nothing to read behind them.
inline void copy_last_columns(const uint8_t* x, int64_t ldx, int64_t rest, uint8_t* out) {
  const __mmask64 there = ~0ull >> (64 - rest);
  for (int64_t r = 0; r < kTileRows; ++r) {
    _mm512_store_si512(out + r * kStepColumns, _mm512_maskz_loadu_epi8(there, x + r * ldx));
  }
}

// The sums of MT tiles of rows and NT tiles of weights stay in the tiles.
template <int MT, int NT>
void multiply(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w, const Block& block,
              Buffers& buffers, NextCodes& next) {
  const int64_t full = w.steps * 4 / kStepColumns, rest = w.steps * 4 % kStepColumns;
  const int64_t tile_bytes = w.steps * 4 * kTileRows;
  const uint8_t* a[2] = {x + block.rows[0] * ldx, x + block.rows[MT - 1] * ldx};
  const int8_t* b[2] = {w.codes + block.tile * tile_bytes, w.codes + (block.tile + NT - 1) * tile_bytes};
  _tile_zero(0);
  if constexpr (NT == 2) _tile_zero(1);
  if constexpr (MT == 2) _tile_zero(2);
  if constexpr (MT == 2 && NT == 2) _tile_zero(3);
  const auto add = [&](const uint8_t* a0, const uint8_t* a1, int64_t stride, const int8_t* b0,
                       const int8_t* b1) {
    _tile_loadd(4, a0, stride);
    _tile_loadd(6, b0, 64);
    _tile_dpbusd(0, 4, 6);
    if constexpr (NT == 2) {
      _tile_loadd(7, b1, 64);
      _tile_dpbusd(1, 4, 7);
    }
    if constexpr (MT == 2) {
      _tile_loadd(5, a1, stride);
      _tile_dpbusd(2, 5, 6);
    }
    if constexpr (MT == 2 && NT == 2) _tile_dpbusd(3, 5, 7);
  };
  for (int64_t s = 0; s < full; ++s) {
    const int64_t column = s * kStepColumns, at = s * kStepBytes;
    add(a[0] + column, a[1] + column, ldx, b[0] + at, b[1] + at);
    next.ask();
  }
  if (rest == 0) return;
  next.ask();
  const int8_t* last[2] = {buffers.b[block.tile - block.strip], buffers.b[block.tile - block.strip + NT - 1]};
  // Weights past the last column are zeros, so that it does not matter what is read there of the next rows.
  const int64_t after = block.rows[MT - 1] + kTileRows;
  if ((m - after) * ldx >= kStepColumns - rest) {
    add(a[0] + full * kStepColumns, a[1] + full * kStepColumns, ldx, last[0], last[1]);
  } else {
    for (int mt = 0; mt < MT; ++mt) {
      copy_last_columns(a[mt] + full * kStepColumns, ldx, rest, buffers.a[mt]);
    }
    finish_writes(&buffers);
    add(buffers.a[0], buffers.a[1], kStepColumns, last[0], last[1]);
  }
}

inline void multiply(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w, const Block& block,
                     Buffers& buffers, NextCodes& next) {
  if (block.tiles == 2) {
    block.row_tiles == 2 ? multiply<2, 2>(x, ldx, m, w, block, buffers, next)
                         : multiply<1, 2>(x, ldx, m, w, block, buffers, next);
  } else {
    block.row_tiles == 2 ? multiply<2, 1>(x, ldx, m, w, block, buffers, next)
                         : multiply<1, 1>(x, ldx, m, w, block, buffers, next);
  }
}

inline void store_sums(const Block& block, Buffers& buffers) {
  _tile_stored(0, buffers.c[0], 64);
  if (block.tiles == 2) _tile_stored(1, buffers.c[1], 64);
  if (block.row_tiles == 2) _tile_stored(2, buffers.c[2], 64);
  if (block.tiles == 2 && block.row_tiles == 2) _tile_stored(3, buffers.c[3], 64);
  finish_writes(&buffers);
}

inline void finish(const IntegerResult& result, const IntegerMatrix& w, const Block& block,
                   const Buffers& buffers) {
  for (int mt = 0; mt < block.row_tiles; ++mt) {
    const BlockSums sums{buffers.c[2 * mt], 16, 16 * kTileRows};
    block.tiles == 2 ? finish_rows<2>(result, w, block.tile, block.rows[mt], kTileRows, sums)
                     : finish_rows<1>(result, w, block.tile, block.rows[mt], kTileRows, sums);
  }
}

// The last steps of some tiles of weights, filled up with zeros.
inline void copy_last_steps(const IntegerMatrix& w, int64_t tile, int64_t tiles, Buffers& buffers) {
  const int64_t full = w.steps * 4 / kStepColumns * kStepBytes, tile_bytes = w.steps * 4 * kTileRows;
  if (full == tile_bytes) return;
  for (int64_t nt = 0; nt < tiles; ++nt) {
    std::memset(buffers.b[nt], 0, sizeof buffers.b[nt]);
    std::memcpy(buffers.b[nt], w.codes + (tile + nt) * tile_bytes + full,
                static_cast<size_t>(tile_bytes - full));
  }
  finish_writes(&buffers);
}

}  // namespace

void amx_linear_i8(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                   const IntegerResult& result, int64_t tile_begin, int64_t tile_end) {
  if (m < kTileRows) {
    avx512_table.linear_i8(x, ldx, m, w, result, tile_begin, tile_end);
    return;
  }
  Buffers buffers;
  finish_writes(x);
  // Tile state belongs to the thread, so each call sets it up and gives it back.
  configure_tiles(kStepColumns);
  const int64_t tile_bytes = w.steps * 4 * kTileRows;
  const int64_t strip_tiles = std::clamp<int64_t>(kStripBytes / tile_bytes & ~1, 2, kMostStripTiles);
  const int64_t blocks = (m + kBlockRows - 1) / kBlockRows, steps = (w.steps * 4 + kStepColumns - 1) / kStepColumns;
  Block before{};
  for (int64_t strip = tile_begin; strip < tile_end; strip += strip_tiles) {
    const int64_t strip_end = std::min(strip + strip_tiles, tile_end), pairs = (strip_end - strip + 1) / 2;
    copy_last_steps(w, strip, strip_end - strip, buffers);
    NextCodes next(w.codes + strip_end * tile_bytes, std::min(tile_end - strip_end, strip_tiles) * tile_bytes,
                   blocks * pairs * steps);
    // What is left of the rows is done with rows before them, whose results come out the same.
    for (int64_t row = 0, last = m - kTileRows; row < m; row += kBlockRows) {
      for (int64_t tile = strip; tile < strip_end; tile += 2) {
        const Block block{{std::min(row, last), std::min(row + kTileRows, last)}, m - row > kTileRows ? 2 : 1,
                          tile, tile + 1 < strip_end ? 2 : 1, strip};
        multiply(x, ldx, m, w, block, buffers, next);
        // While the tiles are at work. The sums are read before the next ones are stored in their place.
        finish(result, w, before, buffers);
        store_sums(block, buffers);
        before = block;
      }
    }
  }
  finish(result, w, before, buffers);
  _tile_release();
}

}  // namespace satchel
