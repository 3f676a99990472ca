// The order in which AMX multiplies long blocks with 4-bit weights, and the way of the sums into
// the results.
#pragma once

#include "amx_planes.h"

namespace satchel {
namespace {

constexpr int64_t kBlockRows = 2 * kTileRows;
constexpr int64_t kMostRows = 256;  // that pass over the weights of one unpacking
constexpr int64_t kMostBlocks = kMostRows / kBlockRows;
// Two runs at a time, of some tiles: so much of the rows' codes stays in the second-level cache.
constexpr int64_t kChunkColumns = 2 * kRunColumns, kStripTiles = 16;

using Sums = int32_t[2][kBlockRows][16];  // of planes

struct alignas(64) Workspace {
  Planes planes;
  Sums sums;
  // Of each block: the sums of a chunk's first run, which wait for those of the second, and the
  // results of earlier chunks. These are side by side: in y, rows are often so far apart that they
  // share the same few places of the caches.
  Sums waiting[kMostBlocks];
  float waiting_steps[2][kTileRows];
  float results[kStripTiles + 1][kMostBlocks][kBlockRows][16];  // and a place for what nobody reads
};

// One call's matrices, and some of its rows.
struct Job {
  const QuantizedRows& x;
  const PackedMatrix& w;
  const float* bias;
  float* y;
  int64_t ldy;
  int64_t first_row, rows;
};

// The order of the work: strips of tiles, chunks of their columns, units of tiles, runs of columns.
struct Place {
  int64_t strip, strip_end, chunk, tile, first;

  static Place begin_of(int64_t tile, int64_t tile_end) {
    return {tile, lesser(tile + kStripTiles, tile_end), 0, tile, 0};
  }
  bool begins_chunk() const { return first == chunk; }
  bool ends_chunk(const PackedMatrix& w) const {
    return first + kRunColumns >= lesser(chunk + kChunkColumns, w.cols);
  }
  Place after(const PackedMatrix& w, const Unit& unit, int64_t tile_end) const {
    Place next = *this;
    next.first += kRunColumns;
    if (!ends_chunk(w)) return next;
    next.tile = unit.end(), next.first = chunk;
    if (next.tile < strip_end) return next;
    next.tile = strip, next.first = next.chunk = chunk + kChunkColumns;
    return next.chunk < w.cols ? next : begin_of(strip_end, tile_end);
  }
};

// The way of a block's sums into the results: added to those of earlier columns, and in the end
// scaled by the activations' steps.
class Scaling {
  using Put = void (Scaling::*)(int64_t rows);

 public:
  void begin(const Job& job, const Place& place, const Unit& unit, int64_t block, int64_t rows,
             Workspace& work) {
    const int64_t before =
        greater<int64_t>(0, kTileRows - rows);  // rows in the tile that are none of the block's
    sums_ = work.sums[0][before];
    waiting_ = place.begins_chunk() ? nullptr : work.waiting[block][0][before];
    const int64_t slot = unit.tile - place.strip;
    results_ = work.results[slot][block][0];
    other_results_ = work.results[unit.tiles == 2 ? slot + 1 : kStripTiles][block][0] - results_;
    left_ = rows;
    const int64_t row = job.first_row + block * kBlockRows, output = unit.tile * kTileRows;
    scales_ = job.x.scales + row;
    out_ = job.y + row * job.ldy + output, ldy_ = job.ldy;
    for (int i = 0; i < 2; ++i) {
      step_[i] = load(work.planes.steps[i]), waiting_step_[i] = load(work.waiting_steps[i]);
      const int64_t first = output + i * kTileRows;
      lanes_[i] = i < unit.tiles ? first_lanes(lesser(job.w.rows - first, kTileRows)) : 0;
      bias_[i] = job.bias ? _mm512_maskz_loadu_ps(lanes_[i], job.bias + first) : broadcast(0.0f);
    }
    const auto of_planes = unit.high_and_low
                               ? (waiting_ ? choose<true, true> : choose<true, false>)
                               : (waiting_ ? choose<false, true> : choose<false, false>);
    put_ = of_planes(place.chunk == 0, place.chunk + kChunkColumns >= job.w.cols);
  }

  int64_t left() const { return left_; }

  void some(int64_t rows) {
    rows = lesser(rows, left_);
    if (rows > 0) (this->*put_)(rows);
  }

 private:
  const int32_t *sums_, *waiting_;
  float *results_, *out_;
  const float* scales_;
  int64_t other_results_;  // from a tile's results to those of the second tile
  int64_t ldy_, left_ = 0;
  F step_[2], waiting_step_[2], bias_[2];
  __mmask16 lanes_[2];
  Put put_ = nullptr;

  template <bool kHighAndLow, bool kWaiting>
  static Put choose(bool is_first, bool is_last) {
    if (is_first) {
      return is_last ? &Scaling::put<kHighAndLow, kWaiting, true, true>
                     : &Scaling::put<kHighAndLow, kWaiting, true, false>;
    }
    return is_last ? &Scaling::put<kHighAndLow, kWaiting, false, true>
                   : &Scaling::put<kHighAndLow, kWaiting, false, false>;
  }

  // With everything in registers: the compiler must believe that a stored vector changes members.
  template <bool kHighAndLow, bool kWaiting, bool kFirst, bool kLast>
  void put(int64_t rows) {
    const int32_t *sums = sums_, *waiting = waiting_;
    const float* scales = scales_;
    float *results = results_, *out = out_;
    const int64_t other_results = other_results_, ldy = ldy_;
    const F step[2] = {step_[0], step_[1]}, waiting_step[2] = {waiting_step_[0], waiting_step_[1]};
    const F bias[2] = {bias_[0], bias_[1]};
    const __mmask16 lanes[2] = {lanes_[0], lanes_[1]};
    const auto whole = [](const int32_t* from, int i) {
      const auto plane = [&](int p) {
        return _mm512_cvtepi32_ps(_mm512_load_si512(from + p * (kBlockRows * 16)));
      };
      return kHighAndLow ? fma(plane(0), broadcast(256.0f), plane(1)) : plane(i);
    };
    for (int64_t row = 0; row < rows; ++row, sums += 16) {
      for (int i = 0; i < (kHighAndLow ? 1 : 2); ++i) {
        float* result = results + i * other_results;
        F total = kFirst ? broadcast(0.0f) : load(result);
        if constexpr (kWaiting) total = fma(whole(waiting, i), waiting_step[i], total);
        total = fma(whole(sums, i), step[i], total);
        if constexpr (kLast) {
          _mm512_mask_storeu_ps(out + i * kTileRows, lanes[i],
                                total * broadcast(*scales) + bias[i]);
        } else {
          store(result, total);
        }
      }
      if constexpr (kWaiting) waiting += 16;
      if constexpr (!kFirst || !kLast) results += 16;
      if constexpr (kLast) out += ldy, ++scales;
    }
    sums_ = sums, waiting_ = waiting, scales_ = scales, results_ = results, out_ = out,
    left_ -= rows;
  }
};

}  // namespace
}  // namespace satchel
