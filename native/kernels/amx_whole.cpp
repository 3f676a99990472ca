// AMX for long blocks of activations and 4-bit weights, as planes of whole numbers: see amx_planes.h.
//
// Tiles work on their own while the rest of the core does something else, as long as it finds that in
// the instructions around them: in every step of 64 columns some sums of the block before are scaled,
// and some of the next weights are asked for.
//
// The sums are more exact than those of the other kernels, but not the same floats: this is why
// there is a smallest number of rows, below which a row gives the same result alone or in a block.

#include "amx_planes.h"
#include "next_codes.h"

namespace satchel {
namespace {

constexpr int64_t kLargestGroup = 128;  // scaling the sums of longer groups costs little
constexpr int64_t kBlockRows = 2 * kTileRows;
constexpr int64_t kMostRows = 512;  // that pass over the weights of one unpacking

using Sums = int32_t[2][2][kTileRows][16];     // of tiles of rows and planes
using Results = float[kBlockRows][kTileRows];  // of a tile

struct alignas(64) Workspace {
  Planes planes;
  Sums sums;
  // The results of a block's earlier runs, and of earlier chunks, side by side: in y, rows are often so
  // far apart that they share the same few places of the caches.
  Results block[2], chunks[kMostRows / kBlockRows][kStripTiles];
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

// A block of rows and a pair of planes.
struct Block {
  int64_t row, rows;
  const PlanePair* pair;
  int row_tiles() const { return rows > kTileRows ? 2 : 1; }
};

// The way of a run's sums into the results: added to those of earlier columns, and in the end scaled by
// the activations' steps.
class Scaling {
 public:
  // Results before, or null where there are none, and afterwards, or null where they go to y.
  void begin(const Job& job, const Chunk& chunk, int64_t run, const Block& block, const Sums& sums,
             const Results* before, Results* after) {
    sums_ = sums, before_ = before, after_ = after;
    high_and_low_ = block.pair->high_and_low, outputs_ = block.pair->tiles;
    scales_ = job.x.scales + job.first_row + block.row;
    const int64_t output = (chunk.tile + block.pair->tile) * kTileRows;
    out_ = job.y + (job.first_row + block.row) * job.ldy + output, ldy_ = job.ldy;
    for (int i = 0; i < outputs_; ++i) {
      step_[i] = load(block.pair->steps[run][i]);
      const int64_t first = output + i * kTileRows;
      lanes_[i] = first_lanes(std::min(job.w.rows - first, kTileRows));
      bias_[i] = job.bias ? _mm512_maskz_loadu_ps(lanes_[i], job.bias + first) : broadcast(0.0f);
    }
    row_ = 0, rows_ = block.rows;
    // The last tile of rows begins earlier where it would not be full.
    whole_ = (rows_ - 1) / kTileRows * kTileRows, skip_ = (kTileRows - rows_ % kTileRows) % kTileRows;
  }

  int64_t rows() const { return rows_; }

  void some(int64_t rows) {
    for (const int64_t end = std::min(row_ + rows, rows_); row_ < end; ++row_) {
      for (int i = 0; i < outputs_; ++i) one(i);
    }
  }

 private:
  const int32_t (*sums_)[2][kTileRows][16];
  const Results* before_ = nullptr;
  Results* after_ = nullptr;
  float* out_;
  const float* scales_;
  int64_t ldy_, row_ = 0, rows_ = 0, whole_, skip_;
  F step_[2], bias_[2];
  __mmask16 lanes_[2];
  int outputs_;
  bool high_and_low_;

  F sum(int64_t row, int plane) const {
    return _mm512_cvtepi32_ps(_mm512_load_si512(sums_[row / kTileRows][plane][row % kTileRows]));
  }

  void one(int i) const {
    const int64_t row = row_ + (row_ < whole_ ? 0 : skip_);
    const F whole = high_and_low_ ? fma(sum(row, 0), broadcast(256.0f), sum(row, 1)) : sum(row, i);
    const F total = fma(whole, step_[i], before_ ? load(before_[i][row_]) : broadcast(0.0f));
    if (after_) {
      store(after_[i][row_], total);
    } else {
      _mm512_mask_storeu_ps(out_ + row_ * ldy_ + i * kTileRows, lanes_[i],
                            total * broadcast(scales_[row_]) + bias_[i]);
    }
  }
};

// What is done beside the products, a share in every step.
struct Beside {
  Scaling scaling;
  NextCodes next;
};

// MT tiles of rows against two planes; the sums stay in the tiles.
template <int MT, bool kHighAndLow>
inline void multiply(const int8_t* rows, const int8_t* last_rows, int64_t stride, const uint8_t* first,
                     const uint8_t* second, int64_t columns, Beside& beside) {
  const int64_t scaled = (beside.scaling.rows() * 64 + columns - 1) / columns;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (MT == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t c = 0; c < columns; c += 64, first += 64 * kTileRows, second += 64 * kTileRows) {
    // A neighbour on the same core takes the first-level cache away: the next step is asked for.
    const auto ask = [](const uint8_t* plane) {
      for (int i = 0; i < 16; ++i) {
        _mm_prefetch(reinterpret_cast<const char*>(plane + (kTileRows + i) * 64), _MM_HINT_T0);
      }
    };
    _tile_loadd(6, first, 64);
    _tile_loadd(4, rows + c, stride);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, second, 64);
    ask(first);
    if constexpr (kHighAndLow) {
      _tile_dpbsud(1, 4, 7);
    } else {
      _tile_dpbssd(1, 4, 7);
    }
    if constexpr (MT == 2) {
      _tile_loadd(5, last_rows + c, stride);
      _tile_dpbssd(2, 5, 6);
      ask(second);
      if constexpr (kHighAndLow) {
        _tile_dpbsud(3, 5, 7);
      } else {
        _tile_dpbssd(3, 5, 7);
      }
    }
    beside.scaling.some(scaled);
    beside.next.ask();
  }
}

inline void multiply(const Job& job, const Chunk& chunk, int64_t run, const Block& block, Beside& beside) {
  const int64_t at = run * kRunColumns, columns = chunk.run_columns(run), stride = job.x.stride;
  const int8_t* rows = job.x.codes + (job.first_row + block.row) * stride + chunk.first + at;
  // The last tile of rows is full: it begins with rows before it where it has to.
  const int8_t* last = rows + (block.rows - kTileRows) * stride;
  const uint8_t *first = block.pair->bytes[0] + at * kTileRows, *second = block.pair->second() + at * kTileRows;
  if (block.row_tiles() == 2) {
    block.pair->high_and_low ? multiply<2, true>(rows, last, stride, first, second, columns, beside)
                             : multiply<2, false>(rows, last, stride, first, second, columns, beside);
  } else {
    block.pair->high_and_low ? multiply<1, true>(last, last, stride, first, second, columns, beside)
                             : multiply<1, false>(last, last, stride, first, second, columns, beside);
  }
}

inline void store_sums(int row_tiles, Sums& sums) {
  _tile_stored(0, sums[0][0], 64);
  _tile_stored(1, sums[0][1], 64);
  if (row_tiles == 2) {
    _tile_stored(2, sums[1][0], 64);
    _tile_stored(3, sums[1][1], 64);
  }
  finish_writes(sums);
}

// All rows of a job against the planes of a chunk.
inline void multiply_chunk(const Job& job, const Chunk& chunk, const Chunk& after, Workspace& work,
                           Scaling& scaling) {
  const PackedMatrix& w = job.w;
  const int64_t blocks = (job.rows + kBlockRows - 1) / kBlockRows, pairs = work.planes.count;
  const int64_t steps = (chunk.columns + 63) / 64 * blocks * pairs;
  Beside beside{scaling, {w, chunk.tile, chunk.tiles, chunk.first, chunk.columns, steps}};
  int64_t asked = 0;  // runs of the next chunk
  for (int64_t row = 0; row < job.rows; row += kBlockRows) {
    for (int64_t p = 0; p < pairs; ++p) {
      if (asked < after.tiles * after.runs()) {
        after.run_of(w, asked / after.runs(), asked % after.runs()).ask_scales(), ++asked;
      }
      const Block block{row, std::min(job.rows - row, kBlockRows), &work.planes.pairs[p]};
      Results* chunks = &work.chunks[row / kBlockRows][block.pair->tile];
      for (int64_t run = 0; run < chunk.runs(); ++run) {
        multiply(job, chunk, run, block, beside);
        store_sums(block.row_tiles(), work.sums);
        Results* before = run > 0 ? work.block : chunk.first > 0 ? chunks : nullptr;
        Results* later = run + 1 < chunk.runs() ? work.block : chunk.is_last(w) ? nullptr : chunks;
        beside.scaling.begin(job, chunk, run, block, work.sums, before, later);
      }
    }
  }
  scaling = beside.scaling;
}

inline void multiply_tiles(const Job& job, int64_t tile_begin, int64_t tile_end, Workspace& work) {
  Scaling scaling;
  for (Chunk chunk = chunk_at(job.w, tile_begin, tile_end, 0), after; chunk.tiles > 0; chunk = after) {
    after = chunk_after(job.w, chunk, tile_end);
    work.planes.unpack(job.w, chunk);
    finish_writes(&work);
    multiply_chunk(job, chunk, after, work, scaling);
  }
  scaling.some(kBlockRows);
}

// How many of the rows pass over the weights together, in passes as equal as can be.
inline int64_t rows_in_pass(const QuantizedRows& x) {
  const int64_t passes = (x.rows + kMostRows - 1) / kMostRows, rows = (x.rows + passes - 1) / passes;
  return (rows + kBlockRows - 1) / kBlockRows * kBlockRows;
}

}  // namespace

bool amx_whole_fits(const QuantizedRows& x, const PackedMatrix& w) {
  // The codes of q4_min need more bits, and a minimum takes away most of their sums again, which
  // leaves less of the rest exact.
  return has_runs(w) && x.rows >= kLongBlock && w.group <= kLargestGroup;
}

void amx_whole_linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                         int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  Workspace work;
  finish_writes(x.codes);
  configure_tiles(64);
  const int64_t pass = rows_in_pass(x);
  for (int64_t row = 0; row < x.rows; row += pass) {
    multiply_tiles({x, w, bias, y, ldy, row, std::min(x.rows - row, pass)}, tile_begin, tile_end, work);
  }
  _tile_release();
}

}  // namespace satchel
