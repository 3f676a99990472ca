// 4-bit weights as planes of bytes, which tiles multiply.
//
// Scaling the sums of every group of 32 columns costs several times as much as the tiles do. So the
// groups of a run of 1,024 columns are brought to one step for each output row, and nothing is scaled
// before the end of the run.
//
// Where the scales are whole multiples of a step already (step_bytes.inl), a weight is one byte. Else
// the step is a power of two. A code of 4 bits times an fp16 scale of 11 bits is then a whole number,
// and 16 bits hold it exactly if the group's scale is at least half of the largest in the run (a
// quarter, for half of them); smaller scales are rounded to 1/4096 of the largest. A number of 16 bits
// is two bytes, in two planes: signed high bytes and unsigned low ones.
#pragma once

#include <algorithm>

#include "amx_tiles.h"
#include "step_bytes.inl"

namespace satchel {
namespace {

// Columns at a time: two runs, so that only every second sum is put aside.
constexpr int64_t kChunkRuns = 2, kChunkColumns = kChunkRuns * kRunColumns;
constexpr int64_t kStripTiles = 4;  // of weights that are unpacked together

// A chunk of columns of a strip of tiles.
struct Chunk {
  int64_t tile, tiles;
  int64_t first, columns;

  int64_t runs() const { return (columns + kRunColumns - 1) / kRunColumns; }
  // Columns of a run, filled up to whole steps of 64.
  int64_t run_columns(int64_t run) const {
    return (std::min(columns - run * kRunColumns, kRunColumns) + 63) / 64 * 64;
  }
  bool is_last(const PackedMatrix& w) const { return first + columns == w.cols; }
  TileRun run_of(const PackedMatrix& w, int64_t t, int64_t run) const {
    return {w, tile + t, first + run * kRunColumns};
  }
};

inline Chunk chunk_at(const PackedMatrix& w, int64_t tile, int64_t tile_end, int64_t first) {
  return {tile, std::min(tile_end - tile, kStripTiles), first, std::min(w.cols - first, kChunkColumns)};
}

// The next one: of the same tiles, or of the next. It has no tiles behind the last.
inline Chunk chunk_after(const PackedMatrix& w, const Chunk& chunk, int64_t tile_end) {
  if (!chunk.is_last(w)) return chunk_at(w, chunk.tile, tile_end, chunk.first + chunk.columns);
  return chunk_at(w, chunk.tile + chunk.tiles, tile_end, 0);
}

// Two planes that meet the rows together: of two tiles, of one (where their number is odd), or the high
// and the low bytes of one.
struct alignas(64) PlanePair {
  uint8_t bytes[2][kChunkColumns * kTileRows];  // [cols/4][16][4], with zeros past the last column
  float steps[kChunkRuns][2][kTileRows];        // what they count, of each run and output row
  int64_t tile;                                 // the first, of the strip
  int tiles;
  bool high_and_low;

  const uint8_t* second() const { return bytes[tiles == 2 || high_and_low ? 1 : 0]; }
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

// A run's numbers of 16 bits.
inline void high_and_low_bytes(const TileRun& run, float* steps, uint8_t* high, uint8_t* low) {
  const F per_scale = choose_steps(run, steps);
  const __m512i nibble = _mm512_set1_epi16(15), low_byte = _mm512_set1_epi16(255);
  const uint8_t* codes = run.codes;
  for (int64_t g = 0; g < run.groups; ++g) {
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
    for (int64_t c = 0; c < run.group; c += 8, codes += 64) {
      const __m512i bytes = _mm512_loadu_si512(codes);
      put(_mm512_and_si512(bytes, nibble), _mm512_and_si512(_mm512_srli_epi16(bytes, 8), nibble));
      put(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble), _mm512_srli_epi16(bytes, 12));
    }
  }
}

struct Planes {
  PlanePair pairs[kStripTiles];
  int64_t count;

  void unpack(const PackedMatrix& w, const Chunk& chunk) {
    count = 0;
    for (int64_t t = 0; t < chunk.tiles; ++t) {
      alignas(64) float steps[kChunkRuns][kTileRows];
      const bool high_and_low = !find_steps(w, chunk, t, steps);
      const bool joins = count > 0 && !high_and_low && !pairs[count - 1].high_and_low && pairs[count - 1].tiles == 1;
      if (!joins) pairs[count].tile = t, pairs[count].tiles = 0, pairs[count++].high_and_low = high_and_low;
      PlanePair& pair = pairs[count - 1];
      const int side = pair.tiles++;
      for (int64_t n = 0; n < chunk.runs(); ++n) {
        const TileRun run = chunk.run_of(w, t, n);
        const int64_t at = n * kRunColumns;
        uint8_t* out = pair.bytes[side] + at * kTileRows;
        if (high_and_low) {
          high_and_low_bytes(run, pair.steps[n][side], out, pair.bytes[1] + at * kTileRows);
        } else {
          store(pair.steps[n][side], load(steps[n]));
          run.bytes(steps[n], 0, out);
        }
        // A zero weight makes whatever stands in the activations behind the last column harmless.
        for (int i = side; i <= (high_and_low ? 1 : side); ++i) {
          for (int64_t c = run.groups * run.group; c < chunk.run_columns(n); c += 4) {
            _mm512_store_si512(pair.bytes[i] + (at + c) * kTileRows, _mm512_setzero_si512());
          }
        }
      }
    }
  }

 private:
  // Of all runs of a tile; false if one has none.
  static bool find_steps(const PackedMatrix& w, const Chunk& chunk, int64_t t, float (*steps)[kTileRows]) {
    for (int64_t n = 0; n < chunk.runs(); ++n) {
      if (!chunk.run_of(w, t, n).find_steps(steps[n])) return false;
    }
    return true;
  }
};

}  // namespace
}  // namespace satchel
