// AMX for layers of unsigned codes and signed 8-bit weights: 16 outputs, up to 16 pixels and 64
// columns per instruction. Weights and codes are read where they lie; only the last columns of the
// weights and of the last rows, where they are no full step, are copied and filled up with zeros.

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
// Products of up to so many columns take one tile of rows and four of weights, so that a row's
// results are a line of codes; longer ones two by two, which is fewer loads.
constexpr int64_t kMostWideColumns = 576;
// Tiles of weights that a block of rows meets one block after the other: as many as stay in the
// first-level cache, so that the rows come there once.
constexpr int64_t kMostStripTiles = 8, kStripBytes = 24 << 10;
constexpr int kBlockSums = 4;  // tiles of them
constexpr int64_t kTileSums = kTileRows * 16;

struct alignas(64) Buffers {
  uint8_t a[2][kTileRows * kStepColumns];  // the last columns of two tiles of rows
  int8_t b[kMostStripTiles][kStepBytes];   // the last steps of the strip's tiles
  int32_t c[kBlockSums][kTileSums];        // [tile of rows][tile of weights][16][16]
};

// Pixels side by side.
struct RowTile {
  const uint8_t* codes;
  int64_t row;             // of the result
  int64_t readable_after;  // bytes of windows behind those of its last pixel
};

// Windows in tiles of up to 16 pixels of a row, the same number in each. What is left of a row is
// done with pixels before, whose results come out the same. Short rows are taken together, with the
// few windows between them that are no pixel's.
class RowTiles {
 public:
  explicit RowTiles(const CodeWindows& windows)
      : x_(windows),
        in_row_((x_.row_pixels + kTileRows - 1) / kTileRows),
        row_pixels_((x_.row_pixels + in_row_ - 1) / in_row_) {
    if (x_.rows == 1 || in_row_ > 1 || x_.row_step % x_.pixel_step != 0) return;
    apart_ = x_.row_step / x_.pixel_step;
    rows_ = lesser(x_.rows, (kTileRows - row_pixels_) / apart_ + 1);
  }
  int64_t rows() const { return rows_; }              // in a tile
  int64_t row_pixels() const { return row_pixels_; }  // of each
  int64_t apart() const { return apart_; }            // windows from one to the next
  int64_t windows() const { return (rows_ - 1) * apart_ + row_pixels_; }
  int64_t count() const { return (x_.rows + rows_ - 1) / rows_ * in_row_; }
  void restart() { row_ = place_ = 0; }
  RowTile next() {
    const int64_t end = x_.row_pixels - row_pixels_, pixel = lesser(place_ * row_pixels_, end);
    const int64_t row = lesser(row_, x_.rows - rows_);
    const RowTile tile{x_.image + row * x_.row_step + pixel * x_.pixel_step,
                       row * x_.row_pixels + pixel,
                       (x_.rows - rows_ - row) * x_.row_step + (end - pixel) * x_.pixel_step};
    if (++place_ == in_row_) place_ = 0, row_ += rows_;
    return tile;
  }

 private:
  const CodeWindows& x_;
  int64_t in_row_, row_pixels_, rows_ = 1, apart_ = 0, row_ = 0, place_ = 0;
};

// Tiles of rows, of which the second may be the first again, and tiles of weights.
struct Block {
  RowTile rows[2];
  int row_tiles;
  int64_t tile;
  int tiles;
};

// A call, and the strip of the weight that the windows meet.
struct Job {
  const CodeWindows& x;
  const IntegerMatrix& w;
  const IntegerResult& result;
  const RowTiles& rows;
  Buffers& buffers;
  int64_t strip = 0;   // its first tile
  bool small = false;  // see have_room
};

// The last rows' last columns, where there may be nothing to read behind them.
inline void copy_last_columns(const uint8_t* x, int64_t ldx, int64_t rows, int64_t rest,
                              uint8_t* out) {
  const __mmask64 there = ~0ull >> (64 - rest);
  for (int64_t r = 0; r < rows; ++r) {
    _mm512_store_si512(out + r * kStepColumns, _mm512_maskz_loadu_epi8(there, x + r * ldx));
  }
}

// The sums of MT tiles of rows and NT tiles of weights stay in the tiles: those of the second row
// behind the first's.
template <int MT, int NT>
void multiply(const Job& job, const Block& block, NextCodes& next) {
  static_assert(MT * NT <= kBlockSums && MT <= 2);
  const int64_t columns = job.w.steps * 4 / job.x.kernel_rows;  // of a row of the kernel
  const int64_t full = columns / kStepColumns, rest = columns % kStepColumns;
  const int64_t tile_bytes = job.w.steps * 4 * kTileRows;
  const uint8_t* a[2] = {block.rows[0].codes, block.rows[MT - 1].codes};
  const int8_t* b = job.w.codes + block.tile * tile_bytes;
  _tile_zero(0);
  if constexpr (MT * NT > 1) _tile_zero(1);
  if constexpr (MT * NT > 2) _tile_zero(2);
  if constexpr (MT * NT > 3) _tile_zero(3);
  const auto add = [&](const uint8_t* a0, const uint8_t* a1, int64_t stride, const int8_t* weights,
                       int64_t apart) {
    _tile_loadd(4, a0, stride);
    _tile_loadd(6, weights, 64);
    _tile_dpbusd(0, 4, 6);
    if constexpr (MT == 1) {
      if constexpr (NT > 1) {
        _tile_loadd(7, weights + apart, 64);
        _tile_dpbusd(1, 4, 7);
      }
      if constexpr (NT > 2) {
        _tile_loadd(6, weights + 2 * apart, 64);
        _tile_dpbusd(2, 4, 6);
      }
      if constexpr (NT > 3) {
        _tile_loadd(7, weights + 3 * apart, 64);
        _tile_dpbusd(3, 4, 7);
      }
    } else {
      if constexpr (NT == 2) {
        _tile_loadd(7, weights + apart, 64);
        _tile_dpbusd(1, 4, 7);
      }
      _tile_loadd(5, a1, stride);
      if constexpr (NT == 2) {
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
      } else {
        _tile_dpbusd(1, 5, 6);
      }
    }
    next.ask();
  };
  for (int64_t row = 0; row < job.x.kernel_rows; ++row) {
    for (int64_t s = 0; s < full; ++s, b += kStepBytes) {
      const int64_t at = row * job.x.pitch + s * kStepColumns;
      add(a[0] + at, a[1] + at, job.x.pixel_step, b, tile_bytes);
    }
  }
  if (rest == 0) return;
  const int8_t* last = job.buffers.b[block.tile - job.strip];
  // Weights past the last column are zeros, so that it does not matter what is read there of the
  // next rows.
  if (block.rows[MT - 1].readable_after >= kStepColumns - rest) {
    add(a[0] + full * kStepColumns, a[1] + full * kStepColumns, job.x.pixel_step, last, kStepBytes);
  } else {
    for (int mt = 0; mt < MT; ++mt) {
      copy_last_columns(a[mt] + full * kStepColumns, job.x.pixel_step, job.rows.windows(), rest,
                        job.buffers.a[mt]);
    }
    finish_writes(&job.buffers);
    add(job.buffers.a[0], job.buffers.a[1], kStepColumns, last, kStepBytes);
  }
}

inline void multiply(const Job& job, const Block& block, NextCodes& next) {
  if (block.row_tiles == 2)
    return block.tiles == 2 ? multiply<2, 2>(job, block, next) : multiply<2, 1>(job, block, next);
  switch (block.tiles) {
    case 4:
      return multiply<1, 4>(job, block, next);
    case 3:
      return multiply<1, 3>(job, block, next);
    case 2:
      return multiply<1, 2>(job, block, next);
    default:
      return multiply<1, 1>(job, block, next);
  }
}

inline void store_sums(const Block& block, Buffers& buffers) {
  const int tiles = block.row_tiles * block.tiles;
  _tile_stored(0, buffers.c[0], 64);
  if (tiles > 1) _tile_stored(1, buffers.c[1], 64);
  if (tiles > 2) _tile_stored(2, buffers.c[2], 64);
  if (tiles > 3) _tile_stored(3, buffers.c[3], 64);
  finish_writes(&buffers);
}

inline void finish(const Job& job, const Block& block) {
  const int64_t pixels = job.rows.row_pixels();
  for (int64_t part = 0, mt = 0, line = 0; part < block.row_tiles * job.rows.rows(); ++part) {
    const int32_t* first = job.buffers.c[mt * block.tiles] + line * job.rows.apart() * 16;
    const BlockSums sums{first, 16, kTileSums, job.small, true};
    const int64_t row = block.rows[mt].row + line * pixels;
    switch (block.tiles) {
      case 4:
        finish_rows<4>(job.result, job.w, block.tile, row, pixels, sums);
        break;
      case 3:
        finish_rows<1>(job.result, job.w, block.tile + 2, row, pixels, sums.from_tile(2));
        [[fallthrough]];
      case 2:
        finish_rows<2>(job.result, job.w, block.tile, row, pixels, sums);
        break;
      default:
        finish_rows<1>(job.result, job.w, block.tile, row, pixels, sums);
    }
    if (++line == job.rows.rows()) line = 0, ++mt;
  }
}

// The last steps of some tiles of weights, filled up with zeros.
inline void copy_last_steps(const IntegerMatrix& w, int64_t tile, int64_t tiles, Buffers& buffers) {
  const int64_t full = w.steps * 4 / kStepColumns * kStepBytes,
                tile_bytes = w.steps * 4 * kTileRows;
  if (full == tile_bytes) return;
  for (int64_t nt = 0; nt < tiles; ++nt) {
    std::memset(buffers.b[nt], 0, sizeof buffers.b[nt]);
    std::memcpy(buffers.b[nt], w.codes + (tile + nt) * tile_bytes + full,
                static_cast<size_t>(tile_bytes - full));
  }
  finish_writes(&buffers);
}

}  // namespace

void amx_conv_i8(const CodeWindows& x, const IntegerMatrix& w, const IntegerResult& result,
                 int64_t tile_begin, int64_t tile_end) {
  Buffers buffers;
  RowTiles rows(x);
  finish_writes(x.image);
  // Tile state belongs to the thread, so each call sets it up and gives it back.
  configure_tiles(kStepColumns, rows.windows());
  const bool wide = w.steps * 4 <= kMostWideColumns;
  const int most_row_tiles = wide ? 1 : 2, most_tiles = kBlockSums / most_row_tiles;
  const int64_t tile_bytes = w.steps * 4 * kTileRows;
  const int64_t strip_tiles = lesser<int64_t>(
      greater<int64_t>(kStripBytes / tile_bytes & -most_tiles, most_tiles), kMostStripTiles);
  const int64_t steps = (w.steps * 4 + kStepColumns - 1) / kStepColumns;
  Job job{x, w, result, rows, buffers, 0, have_room(result, w, tile_begin, tile_end - tile_begin)};
  Block before{};
  for (int64_t strip = tile_begin; strip < tile_end; strip += strip_tiles) {
    const int64_t strip_end = lesser(strip + strip_tiles, tile_end);
    const int64_t row_blocks = (rows.count() + most_row_tiles - 1) / most_row_tiles;
    const int64_t blocks = (strip_end - strip + most_tiles - 1) / most_tiles * row_blocks;
    copy_last_steps(w, strip, strip_end - strip, buffers);
    job.strip = strip;
    const int8_t* following = strip_end < tile_end ? w.codes + strip_end * tile_bytes : w.next;
    const int64_t bytes = strip_end < tile_end ? (tile_end - strip_end) * tile_bytes : w.next_bytes;
    NextCodes next(following, lesser(bytes, strip_tiles * tile_bytes), blocks * steps);
    rows.restart();
    for (int64_t row = 0; row < rows.count(); row += most_row_tiles) {
      Block block{
          {rows.next(), {}}, row + most_row_tiles > rows.count() ? 1 : most_row_tiles, 0, 0};
      if (block.row_tiles == 2) block.rows[1] = rows.next();
      for (int64_t tile = strip; tile < strip_end; tile += most_tiles) {
        block.tile = tile;
        block.tiles = static_cast<int>(lesser<int64_t>(most_tiles, strip_end - tile));
        multiply(job, block, next);
        // While the tiles are at work. The sums are read before the next ones are stored in their
        // place.
        finish(job, before);
        store_sums(block, buffers);
        before = block;
      }
    }
  }
  finish(job, before);
  _tile_release();
}

void amx_linear_i8(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                   const IntegerResult& result, int64_t tile_begin, int64_t tile_end) {
  if (m < kTileRows) {
    avx512_table.linear_i8(x, ldx, m, w, result, tile_begin, tile_end);
    return;
  }
  amx_conv_i8({x, 1, m, 0, ldx, 1, 0}, w, result, tile_begin, tile_end);
}

}  // namespace satchel
