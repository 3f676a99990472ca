// AMX for long blocks of activations and 4-bit weights, as planes of whole numbers: see
// amx_planes.h.
//
// A run of columns of two tiles of weights stays in the first-level cache while all rows pass by,
// from the second. Tiles work on their own while the rest of the core does something else, as long
// as it finds that in the instructions around them: in every step of 64 columns some sums of the
// block before are scaled and some of the next weights asked for, and beside the last block the
// next weights are unpacked.
//
// The sums are more exact than those of the other kernels, but not the same floats: this is why
// there is a smallest number of rows, below which a row gives the same result alone or in a block.

#include "amx_scaling.h"
#include "next_codes.h"

namespace satchel {
namespace {

constexpr int64_t kLargestGroup = 128;  // scaling the sums of longer groups costs little

// What is done beside the products, a share in every step.
struct Beside {
  Scaling scaling;
  NextCodes next;
  Unpacking unpacking;  // of the run after this one
};

// A neighbour on the same core takes the first-level cache away. Asking for the next tiles of both
// planes would help against it more, but cost a core of its own more than that.
inline void ask_for_tile(const uint8_t* bytes) {
  for (int i = 0; i < kTileRows; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(bytes + i * 64), _MM_HINT_T0);
  }
}

// A block of rows against two planes; the sums stay in the tiles.
template <int kRowTiles, bool kHighAndLow, bool kUnpack>
inline void multiply(const int8_t* rows, const int8_t* last_rows, int64_t stride, Planes& planes,
                     int second_plane, int64_t columns, Beside& beside) {
  const int64_t scaled = (beside.scaling.left() * kStepColumns + columns - 1) / columns;
  const uint8_t *first = planes.bytes[0], *second = planes.bytes[second_plane];
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kRowTiles == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t c = 0; c < columns; c += kStepColumns) {
    // The rows' codes do not enter the first-level cache, so that the planes stay there.
    _tile_loadd(6, first, 64);
    _tile_stream_loadd(4, rows + c, stride);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, second, 64);
    first += kStepColumns * kTileRows, second += kStepColumns * kTileRows;
    ask_for_tile(first);
    if constexpr (kHighAndLow) {
      _tile_dpbsud(1, 4, 7);
    } else {
      _tile_dpbssd(1, 4, 7);
    }
    if constexpr (kRowTiles == 2) {
      _tile_stream_loadd(5, last_rows + c, stride);
      _tile_dpbssd(2, 5, 6);
      if constexpr (kHighAndLow) {
        _tile_dpbsud(3, 5, 7);
      } else {
        _tile_dpbssd(3, 5, 7);
      }
    }
    if constexpr (kUnpack) {
      finish_writes(&planes);
      if (c < beside.unpacking.columns()) beside.unpacking.step(c, planes);
      finish_writes(&planes);
    }
    beside.scaling.some(scaled);
    beside.next.ask();
  }
}

template <bool kUnpack>
inline void multiply(const Job& job, const Place& place, const Unit& unit, int64_t block,
                     int64_t count, Planes& planes, int64_t columns, Beside& beside) {
  const int64_t stride = job.x.stride;
  const int8_t* rows = job.x.codes + (job.first_row + block * kBlockRows) * stride + place.first;
  // The last tile of rows is full: it begins with rows before it where it has to.
  const int8_t* last = rows + (count - kTileRows) * stride;
  const int second = unit.second_plane();
  if (count > kTileRows) {
    unit.high_and_low
        ? multiply<2, true, kUnpack>(rows, last, stride, planes, second, columns, beside)
        : multiply<2, false, kUnpack>(rows, last, stride, planes, second, columns, beside);
  } else {
    unit.high_and_low
        ? multiply<1, true, kUnpack>(last, last, stride, planes, second, columns, beside)
        : multiply<1, false, kUnpack>(last, last, stride, planes, second, columns, beside);
  }
}

inline void store_sums(int64_t rows, Sums& sums) {
  _tile_stored(0, sums[0][0], 64);
  _tile_stored(1, sums[1][0], 64);
  if (rows > kTileRows) {
    _tile_stored(2, sums[0][rows - kTileRows], 64);
    _tile_stored(3, sums[1][rows - kTileRows], 64);
  }
  finish_writes(sums);
}

// What is needed of the run at this place, asked for while so many steps of others are multiplied.
inline NextCodes ask_for(const PackedMatrix& w, const Place& place, bool new_tiles, int64_t steps) {
  const int64_t tile_end = lesser(place.tile + 2, place.strip_end);
  for (int64_t t = place.tile; t < tile_end && new_tiles; ++t) {
    for (int64_t c = 0; c < w.cols; c += kRunColumns) TileRun(w, t, c).ask_scales();
  }
  return {w,
          place.tile,
          tile_end - place.tile,
          place.first,
          lesser(w.cols - place.first, kRunColumns),
          steps};
}

inline void multiply_tiles(const Job& job, int64_t tile_begin, int64_t tile_end, Workspace& work) {
  const PackedMatrix& w = job.w;
  const int64_t blocks = (job.rows + kBlockRows - 1) / kBlockRows;
  Place place = Place::begin_of(tile_begin, tile_end);
  Unit unit = unit_at(w, place.tile, place.strip_end);
  Beside beside{{}, {nullptr, 0, 1}, Unpacking(w, unit, place.first)};
  for (int64_t unpacked = 0; place.tile < tile_end;) {
    const int64_t columns = beside.unpacking.columns();
    // What was not done beside the last block: at first all of it.
    for (; unpacked < columns; unpacked += kStepColumns)
      beside.unpacking.step(unpacked, work.planes);
    beside.unpacking.finish(work.planes);
    finish_writes(&work.planes);
    const Place next = place.after(w, unit, tile_end);
    const bool more = next.tile < tile_end, new_tiles = next.tile != place.tile;
    if (more)
      beside.next =
          ask_for(w, next, new_tiles, greater<int64_t>(1, blocks - 1) * columns / kStepColumns);
    Unit next_unit = unit;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t rows = lesser(job.rows - b * kBlockRows, kBlockRows);
      if (more && b + 1 == blocks) {
        if (new_tiles) next_unit = unit_at(w, next.tile, next.strip_end);
        beside.unpacking = Unpacking(w, next_unit, next.first);
        multiply<true>(job, place, unit, b, rows, work.planes, columns, beside);
      } else {
        multiply<false>(job, place, unit, b, rows, work.planes, columns, beside);
      }
      if (place.ends_chunk(w)) {
        store_sums(rows, work.sums);
        beside.scaling.begin(job, place, unit, b, rows, work);
      } else {
        store_sums(rows, work.waiting[b]);
      }
    }
    for (int i = 0; i < 2; ++i) store(work.waiting_steps[i], load(work.planes.steps[i]));
    place = next, unit = next_unit, unpacked = columns;
  }
  beside.scaling.some(kBlockRows);
}

// How many of the rows pass over the weights together, in passes as equal as can be.
inline int64_t rows_in_pass(const QuantizedRows& x) {
  const int64_t passes = (x.rows + kMostRows - 1) / kMostRows,
                rows = (x.rows + passes - 1) / passes;
  return (rows + kBlockRows - 1) / kBlockRows * kBlockRows;
}

}  // namespace

bool amx_whole_fits(const QuantizedRows& x, const PackedMatrix& w) {
  // The codes of q4_min need more bits, and a minimum takes away most of their sums again, which
  // leaves less of the rest exact.
  return has_runs(w) && is_long(x) && w.group <= kLargestGroup;
}

void amx_whole_linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                         int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  if (tile_begin >= tile_end) return;
  Workspace work;
  finish_writes(x.codes);
  configure_tiles(64);
  const int64_t pass = rows_in_pass(x);
  for (int64_t row = 0; row < x.rows; row += pass) {
    multiply_tiles({x, w, bias, y, ldy, row, lesser(x.rows - row, pass)}, tile_begin, tile_end,
                   work);
  }
  _tile_release();
}

}  // namespace satchel
