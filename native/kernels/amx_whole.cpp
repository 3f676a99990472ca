// AMX for long blocks of activations and 4-bit weights: weights as whole numbers.
//
// Scaling the sums of every group of 32 columns costs several times as much as the tiles do. So the
// groups of a chunk of columns are brought to one step for each output row, and nothing is scaled
// before the end of the chunk.
//
// Where the scales are whole multiples of a step already (step_bytes.inl), a weight is one byte, and
// two tiles of weights multiply the rows together. Else the step is a power of two. A code of 4 bits
// times an fp16 scale of 11 bits is then a whole number, and 16 bits hold it exactly if the group's
// scale is at least half of the largest in the chunk (a quarter, for half of them); smaller scales are
// rounded to 1/4096 of the largest. A number of 16 bits is two bytes, which are two weight tiles.
//
// The sums are more exact than those of the other kernels, but not the same floats: this is why
// there is a smallest number of rows, below which a row gives the same result alone or in a block.

#include <algorithm>

#include "amx_tiles.h"
#include "next_codes.h"
#include "step_bytes.inl"

namespace satchel {
namespace {

constexpr int64_t kChunkColumns = kRunColumns;
constexpr int64_t kLargestGroup = 128;  // scaling the sums of longer groups costs little
constexpr int64_t kBlockRows = 2 * kTileRows;
constexpr int64_t kMostRows = 512;  // that pass over the weights of one unpacking
constexpr int64_t kStripTiles = 8;  // of single bytes that a block of rows passes over while it is near
// Bytes of activations that stay in the second-level cache while all tiles pass over them: past it,
// unpacking again for every part of the rows costs less than fetching them for every tile.
constexpr int64_t kPassBytes = 1 << 20;

using Plane = uint8_t[kChunkColumns * kTileRows];  // bytes [cols/4][16][4]
using Sums = int32_t[4][kTileRows * 16];           // [2 * tile of rows + plane][16][16]

struct alignas(64) Workspace {
  Plane planes[kStripTiles];            // of weights
  int8_t a[kTileRows][kChunkColumns];   // the last rows, padded with zeros to a full tile
  Sums sums;                            // of a block of rows
  float steps[kStripTiles][kTileRows];  // what the whole numbers of each output row count
  // The results so far, side by side: in y, rows are often so far apart that they share the same
  // few places of the caches.
  float results[kMostRows][kStripTiles][kTileRows];
};

// One call's matrices, and where the current tiles and chunk of columns stand.
struct Job {
  const QuantizedRows& x;
  const PackedMatrix& w;
  const float* bias;
  float* y;
  int64_t ldy;
  int64_t first_row, rows;
  int64_t tile = 0, tiles = 0;
  int64_t first = 0, columns = 0;  // columns [first, first + columns)

  bool is_last() const { return first + columns == w.cols; }
  float* output(int64_t row, int64_t t) const {
    return y + (first_row + row) * ldy + (tile + t) * kTileRows;
  }
  int64_t padded() const { return (columns + 63) / 64 * 64; }
};

// Zeros up to a multiple of 64 columns: a zero weight makes whatever stands in the activations there
// harmless.
inline void pad(const Job& job, uint8_t* plane) {
  for (int64_t c = job.columns; c < job.padded(); c += 4) {
    _mm512_store_si512(plane + c * kTileRows, _mm512_setzero_si512());
  }
}

// Adds results to those of earlier chunks; the last chunk applies the activations' scales and the bias.
inline void put(const Job& job, Workspace& work, int64_t row, int64_t t, F whole, __mmask16 lanes, F bias) {
  float* result = work.results[row][t];
  const F total = fma(whole, load(work.steps[t]), job.first > 0 ? load(result) : broadcast(0.0f));
  if (job.is_last()) {
    _mm512_mask_storeu_ps(job.output(row, t), lanes,
                          total * broadcast(job.x.scales[job.first_row + row]) + bias);
  } else {
    store(result, total);
  }
}

inline __mmask16 lanes_of(const Job& job, int64_t t) {
  const int64_t left = job.w.rows - (job.tile + t) * kTileRows;
  return first_lanes(left < kTileRows ? left : kTileRows);
}

inline F bias_of(const Job& job, int64_t t) {
  if (job.bias == nullptr) return broadcast(0.0f);
  return _mm512_maskz_loadu_ps(lanes_of(job, t), job.bias + (job.tile + t) * kTileRows);
}

// Weights of pairs of tiles, the last of one twice where their number is odd, as signed bytes.
struct OneByte {
  static void unpack(const Job& job, Workspace& work) {
    for (int64_t t = 0; t < job.tiles; ++t) {
      const TileRun run(job.w, job.tile + t, job.first);
      run.find_steps(work.steps[t]);
      run.bytes(work.steps[t], 0, work.planes[t]);
      pad(job, work.planes[t]);
    }
  }
  static int64_t pairs(const Job& job) { return (job.tiles + 1) / 2; }
  static const uint8_t* second_plane(const Job& job, const Workspace& work, int64_t pair) {
    return work.planes[std::min(2 * pair + 1, job.tiles - 1)];
  }
  static void multiply_second(bool first_rows) {
    if (first_rows) {
      _tile_dpbssd(1, 4, 7);
    } else {
      _tile_dpbssd(3, 5, 7);
    }
  }
  static void scale_sums(const Job& job, Workspace& work, int64_t row, int64_t rows, int64_t pair) {
    for (int64_t t = 2 * pair; t < std::min(2 * pair + 2, job.tiles); ++t) {
      const __mmask16 lanes = lanes_of(job, t);
      const F bias = bias_of(job, t);
      for (int64_t r = 0; r < rows; ++r) {
        const int32_t* sums = work.sums[(r < kTileRows ? 0 : 2) + t % 2] + r % kTileRows * 16;
        put(job, work, row + r, t, _mm512_cvtepi32_ps(_mm512_load_si512(sums)), lanes, bias);
      }
    }
  }
};

// The chunk's largest scales become 2048 .. 4095 steps. A row with a scale that is not finite has
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
  const F finite = smaller(sum, broadcast(kLargestHalf * kChunkColumns)) - sum;  // 0, or NaN
  const __mmask16 bad = _mm512_cmp_ps_mask(finite, broadcast(0.0f), _CMP_NEQ_UQ);
  const F size = _mm512_scalef_ps(broadcast(1.0f), exponent - broadcast(11.0f));
  store(step, _mm512_mask_mov_ps(size, bad, broadcast(__builtin_nanf(""))));
  return _mm512_scalef_ps(broadcast(1.0f), broadcast(11.0f) - exponent);
}

// Weights of one tile: signed high bytes and unsigned low ones.
struct TwoBytes {
  static void unpack(const Job& job, Workspace& work) {
    const TileRun run(job.w, job.tile, job.first);
    const uint8_t* codes = run.codes;
    const F per_step = choose_steps(run, work.steps[0]);
    const __m512i nibble = _mm512_set1_epi16(15), low_byte = _mm512_set1_epi16(255);
    uint8_t *high = work.planes[0], *low = work.planes[1];
    for (int64_t g = 0; g < run.groups; ++g) {
      const __m512i steps = _mm512_cvtps_epi32(run.scale(g) * per_step);
      // The same factor for both halves of a row's 32 bits; codes are offset by 8.
      const __m512i factor = _mm512_or_si512(_mm512_and_si512(steps, _mm512_set1_epi32(0xffff)),
                                             _mm512_slli_epi32(steps, 16));
      const __m512i offset = _mm512_slli_epi16(factor, 3);
      const auto put = [&](__m512i even, __m512i odd) {
        even = _mm512_sub_epi16(_mm512_mullo_epi16(even, factor), offset);
        odd = _mm512_sub_epi16(_mm512_mullo_epi16(odd, factor), offset);
        constexpr int kFirstWhereMask = 0xca;  // mask ? even : odd
        _mm512_store_si512(low, _mm512_ternarylogic_epi32(low_byte, even,
                                                          _mm512_slli_epi16(odd, 8),
                                                          kFirstWhereMask));
        _mm512_store_si512(high, _mm512_ternarylogic_epi32(low_byte, _mm512_srli_epi16(even, 8), odd,
                                                           kFirstWhereMask));
        low += 64, high += 64;
      };
      for (int64_t c = 0; c < job.w.group; c += 8, codes += 64) {
        const __m512i bytes = _mm512_loadu_si512(codes);
        put(_mm512_and_si512(bytes, nibble),
            _mm512_and_si512(_mm512_srli_epi16(bytes, 8), nibble));
        put(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble), _mm512_srli_epi16(bytes, 12));
      }
    }
    pad(job, work.planes[0]);
    pad(job, work.planes[1]);
  }
  static int64_t pairs(const Job&) { return 1; }
  static const uint8_t* second_plane(const Job&, const Workspace& work, int64_t) {
    return work.planes[1];
  }
  static void multiply_second(bool first_rows) {
    if (first_rows) {
      _tile_dpbsud(1, 4, 7);
    } else {
      _tile_dpbsud(3, 5, 7);
    }
  }
  static void scale_sums(const Job& job, Workspace& work, int64_t row, int64_t rows, int64_t) {
    const __mmask16 lanes = lanes_of(job, 0);
    const F bias = bias_of(job, 0), high_unit = broadcast(256.0f);
    for (int64_t r = 0; r < rows; ++r) {
      const int32_t* high = work.sums[r < kTileRows ? 0 : 2] + r % kTileRows * 16;
      const int32_t* low = work.sums[r < kTileRows ? 1 : 3] + r % kTileRows * 16;
      const F whole = fma(_mm512_cvtepi32_ps(_mm512_load_si512(high)), high_unit,
                          _mm512_cvtepi32_ps(_mm512_load_si512(low)));
      put(job, work, row + r, 0, whole, lanes, bias);
    }
  }
};

// Up to 32 rows of activations against the unpacked chunk; the sums stay in the tiles.
template <class Form, int MT>
inline void multiply(const Job& job, Workspace& work, int64_t row, int64_t rows, int64_t pair) {
  const QuantizedRows& x = job.x;
  const int64_t last_rows = rows - (MT - 1) * kTileRows;
  const int64_t padded = job.padded();
  const uint8_t *first = work.planes[2 * pair], *second = Form::second_plane(job, work, pair);
  const int8_t* codes = x.codes + (job.first_row + row) * x.stride + job.first;
  const int8_t* start[2] = {codes, codes + kTileRows * x.stride};
  int64_t stride[2] = {x.stride, x.stride};
  if (last_rows < kTileRows) {
    for (int64_t r = 0; r < last_rows; ++r) {
      std::memcpy(work.a[r], start[MT - 1] + r * x.stride, static_cast<size_t>(padded));
    }
    start[MT - 1] = work.a[0];
    stride[MT - 1] = kChunkColumns;
    finish_writes(&work);
  }
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (MT == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  // The last pass over these rows asks for the next ones, which are too far apart for the hardware to.
  const int8_t* next = codes + kBlockRows * x.stride;
  const bool ask = row + 2 * kBlockRows <= job.rows && pair + 1 == Form::pairs(job);
  for (int64_t c = 0; c < padded; c += 64) {
    for (int64_t r = 0; ask && r < kBlockRows; ++r) {
      _mm_prefetch(reinterpret_cast<const char*>(next + r * x.stride + c), _MM_HINT_T0);
    }
    _tile_loadd(6, first + c * kTileRows, 64);
    _tile_loadd(4, start[0] + c, stride[0]);
    _tile_loadd(7, second + c * kTileRows, 64);
    _tile_dpbssd(0, 4, 6);
    Form::multiply_second(true);
    if constexpr (MT == 2) {
      _tile_loadd(5, start[1] + c, stride[1]);
      _tile_dpbssd(2, 5, 6);
      Form::multiply_second(false);
    }
  }
}

inline void store_sums(Workspace& work, bool both) {
  _tile_stored(0, work.sums[0], 64);
  _tile_stored(1, work.sums[1], 64);
  if (both) {
    _tile_stored(2, work.sums[2], 64);
    _tile_stored(3, work.sums[3], 64);
  }
  finish_writes(&work);
}

// All rows against one chunk: a block of rows against all pairs of planes, while it is in the
// first-level cache. A block's sums are scaled while the tiles work on the next one. They are read
// before those of the next block are stored: a load waits for an earlier store whose address has the
// same last 12 bits, and four tiles have them all.
template <class Form>
inline void multiply_chunk(const Job& job, Workspace& work) {
  const int64_t pairs = Form::pairs(job);
  NextCodes next(job.w, job.tile, job.tiles, job.first, job.columns,
                 (job.rows + kBlockRows - 1) / kBlockRows * pairs);
  for (int64_t row = 0; row < job.rows; row += kBlockRows) {
    const int64_t rows = std::min(job.rows - row, kBlockRows);
    for (int64_t pair = 0; pair < pairs; ++pair) {
      next.ask();
      if (job.is_last()) {
        for (int64_t r = 0; r < rows; ++r) {
          __builtin_prefetch(job.output(row + r, 2 * pair), 1);
        }
      }
      if (rows > kTileRows) {
        multiply<Form, 2>(job, work, row, rows, pair);
      } else {
        multiply<Form, 1>(job, work, row, rows, pair);
      }
      if (pair > 0) {
        Form::scale_sums(job, work, row, rows, pair - 1);
      } else if (row > 0) {
        Form::scale_sums(job, work, row - kBlockRows, kBlockRows, pairs - 1);
      }
      store_sums(work, rows > kTileRows);
    }
  }
  const int64_t last = (job.rows - 1) / kBlockRows * kBlockRows;
  Form::scale_sums(job, work, last, job.rows - last, pairs - 1);
}

template <class Form>
inline void multiply_tiles(Job job, Workspace& work) {
  for (; job.first < job.w.cols; job.first += kChunkColumns) {
    job.columns = std::min(job.w.cols - job.first, kChunkColumns);
    Form::unpack(job, work);
    finish_writes(&work);
    multiply_chunk<Form>(job, work);
  }
}

// How many of the rows pass over the weights together, in passes as equal as can be.
inline int64_t rows_in_pass(const QuantizedRows& x) {
  const int64_t fit = std::clamp<int64_t>(kPassBytes / x.stride, kLongBlock, kMostRows);
  const int64_t passes = (x.rows + fit - 1) / fit, rows = (x.rows + passes - 1) / passes;
  return (rows + kBlockRows - 1) / kBlockRows * kBlockRows;
}

}  // namespace

bool amx_whole_fits(const QuantizedRows& x, const PackedMatrix& w) {
  // The codes of q4_min need more bits, and a minimum takes away most of their sums again, which
  // leaves less of the rest exact.
  const bool q4 = w.encoding == MatrixEncoding::q4 || w.encoding == MatrixEncoding::q4_steps;
  return q4 && x.rows >= kLongBlock && w.group <= kLargestGroup &&
         kChunkColumns % w.group == 0;
}

void amx_whole_linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                         int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  Workspace work;
  std::memset(work.a, 0, sizeof work.a);
  finish_writes(x.codes);
  configure_tiles(64);
  const int64_t pass = rows_in_pass(x);
  for (int64_t row = 0; row < x.rows; row += pass) {
    Job job{x, w, bias, y, ldy, row, std::min(x.rows - row, pass)};
    for (job.tile = tile_begin; job.tile < tile_end; job.tile += job.tiles) {
      job.tiles = 1;
      if (!have_steps(w, job.tile)) {
        multiply_tiles<TwoBytes>(job, work);
        continue;
      }
      while (job.tiles < kStripTiles && job.tile + job.tiles < tile_end &&
             have_steps(w, job.tile + job.tiles)) {
        ++job.tiles;
      }
      multiply_tiles<OneByte>(job, work);
    }
  }
  _tile_release();
}

}  // namespace satchel
