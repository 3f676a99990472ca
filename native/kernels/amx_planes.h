// 4-bit weights as planes of bytes, which tiles multiply.
//
// Scaling the sums of every group of 32 columns costs several times as much as the tiles do. So the
// groups of a run of 1,024 columns are brought to one step for each output row, and nothing is
// scaled before the end of the run.
//
// Where the scales are whole multiples of a step already (step_bytes.inl), a weight is one byte.
// Else the step is a power of two. A code of 4 bits times an fp16 scale of 11 bits is then a whole
// number, and 16 bits hold it exactly if the group's scale is at least half of the largest in the
// run (a quarter, for half of them); smaller scales are rounded to 1/4096 of the largest. A number
// of 16 bits is two bytes, in two planes: signed high bytes and unsigned low ones.
#pragma once

#include "amx_tiles.h"
#include "step_bytes.inl"

namespace satchel {
namespace {

constexpr int64_t kStepColumns = 64;  // of a tile

// What meets the rows together: two tiles, one (the last, or where the next has no steps), or the
// high and the low bytes of one. A tile's own scales decide, whichever tiles are beside it.
struct Unit {
  int64_t tile;
  int tiles;
  bool high_and_low;

  int64_t end() const { return tile + tiles; }
  // One tile alone is multiplied twice.
  int second_plane() const { return high_and_low || tiles == 2 ? 1 : 0; }
};

inline Unit unit_at(const PackedMatrix& w, int64_t tile, int64_t tile_end) {
  if (!have_steps(w, tile)) return {tile, 1, true};
  return {tile, tile + 1 < tile_end && have_steps(w, tile + 1) ? 2 : 1, false};
}

// A run of columns of a unit, which stays in the first-level cache while all rows pass.
struct alignas(64) Planes {
  uint8_t bytes[2][kRunColumns * kTileRows];  // [cols/4][16][4], with zeros past the last column
  float steps[2][kTileRows];                  // what they count, of each tile's output rows
};

// The run's largest scales become 2048 .. 4095 steps. A row with a scale that is not finite has
// NaN for a step.
inline F choose_steps(const TileRun& run, float* step) {
  constexpr float kSmallestHalf = 0x1p-24f, kLargestHalf = 65504.0f;
  F largest = broadcast(kSmallestHalf), sum = broadcast(0.0f);
  for (int64_t g = 0; g < run.groups; ++g) {
    const F scale = run.scale(g);
    largest = larger(largest, _mm512_abs_ps(scale));
    sum = sum + _mm512_abs_ps(scale);  // unlike a maximum, keeps NaN
  }
  const F exponent = _mm512_getexp_ps(largest);
  const F finite = smaller(sum, broadcast(kLargestHalf * kRunColumns)) - sum;  // 0, or NaN
  const __mmask16 bad = _mm512_cmp_ps_mask(finite, broadcast(0.0f), _CMP_NEQ_UQ);
  const F size = _mm512_scalef_ps(broadcast(1.0f), exponent - broadcast(11.0f));
  store(step, _mm512_mask_mov_ps(size, bad, broadcast(__builtin_nanf(""))));
  return _mm512_scalef_ps(broadcast(1.0f), broadcast(11.0f) - exponent);
}

// A run's numbers of 16 bits, of columns [begin, end).
inline void high_and_low_bytes(const TileRun& run, F per_scale, int64_t begin, int64_t end,
                               uint8_t* high, uint8_t* low) {
  const __m512i nibble = _mm512_set1_epi16(15), low_byte = _mm512_set1_epi16(255);
  const uint8_t* codes = run.codes + begin * 8;
  for (int64_t g = begin / run.group, column = begin; column < end; ++g) {
    const __m512i whole = _mm512_cvtps_epi32(run.scale(g) * per_scale);
    // The same factor for both halves of a row's 32 bits; codes are offset by 8.
    const __m512i factor = _mm512_or_si512(_mm512_and_si512(whole, _mm512_set1_epi32(0xffff)),
                                           _mm512_slli_epi32(whole, 16));
    const __m512i offset = _mm512_slli_epi16(factor, 3);
    const auto put = [&](__m512i even, __m512i odd) {
      even = _mm512_sub_epi16(_mm512_mullo_epi16(even, factor), offset);
      odd = _mm512_sub_epi16(_mm512_mullo_epi16(odd, factor), offset);
      constexpr int kFirstWhereMask = 0xca;  // mask ? even : odd
      _mm512_store_si512(low, _mm512_ternarylogic_epi32(low_byte, even, _mm512_slli_epi16(odd, 8),
                                                        kFirstWhereMask));
      _mm512_store_si512(high, _mm512_ternarylogic_epi32(low_byte, _mm512_srli_epi16(even, 8), odd,
                                                         kFirstWhereMask));
      low += 64, high += 64;
    };
    for (const int64_t stop = lesser(end, (g + 1) * run.group); column < stop;
         column += 8, codes += 64) {
      const __m512i bytes = _mm512_loadu_si512(codes);
      put(_mm512_and_si512(bytes, nibble), _mm512_and_si512(_mm512_srli_epi16(bytes, 8), nibble));
      put(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble), _mm512_srli_epi16(bytes, 12));
    }
  }
}

// The way of a run's codes into planes: a step at a time, while tiles multiply what stood there
// before.
class Unpacking {
 public:
  Unpacking(const PackedMatrix& w, const Unit& unit, int64_t first)
      : unit_(unit), tiles_{{w, unit.tile, first}, {w, unit.end() - 1, first}} {
    if (unit.high_and_low) per_scale_ = choose_steps(tiles_[0], steps_[0]);
    for (int i = 0; i < 2 && !unit.high_and_low; ++i) store(steps_[i], tiles_[i].steps());
  }

  // Filled up to whole steps.
  int64_t columns() const {
    return (tiles_[0].columns() + kStepColumns - 1) / kStepColumns * kStepColumns;
  }

  void step(int64_t begin, Planes& planes) const {
    const int64_t end = lesser(begin + kStepColumns, tiles_[0].columns());
    uint8_t *first = planes.bytes[0] + begin * kTileRows,
            *second = planes.bytes[1] + begin * kTileRows;
    if (unit_.high_and_low) {
      high_and_low_bytes(tiles_[0], per_scale_, begin, end, first, second);
    } else {
      tiles_[0].bytes(steps_[0], 0, begin, end, first);
      if (unit_.tiles == 2) tiles_[1].bytes(steps_[1], 0, begin, end, second);
    }
    // A zero weight makes whatever stands in the activations behind the last column harmless.
    for (int64_t c = end - begin; c < kStepColumns; c += 4) {
      _mm512_store_si512(first + c * kTileRows, _mm512_setzero_si512());
      _mm512_store_si512(second + c * kTileRows, _mm512_setzero_si512());
    }
  }

  void finish(Planes& planes) const {
    for (int i = 0; i < 2; ++i) store(planes.steps[i], load(steps_[i]));
  }

 private:
  Unit unit_;
  TileRun tiles_[2];
  F per_scale_;
  alignas(64) float steps_[2][kTileRows] = {};
};

}  // namespace
}  // namespace satchel
