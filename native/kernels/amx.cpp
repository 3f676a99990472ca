// AMX: 16 × 16 outputs and 64 columns per instruction, for blocks of activations. Long blocks
// against 4-bit weights are in amx_whole.cpp.
//
// The packed layout [cols/4][16][4] is that of an AMX B tile. Weights are unpacked to unsigned
// bytes in a buffer that stays in the first-level cache while all rows pass over it; activations
// are read in place. Sums of a group leave the tiles as int32 and are scaled with AVX-512, in the
// order of the AVX-512 kernels, so that both give the same floats.

#include "amx_tiles.h"
#include "scales.inl"

namespace satchel {
namespace {

constexpr int64_t kChunkColumns = 512;  // weights unpacked at a time
constexpr int64_t kChunkGroups = 4;     // groups whose sums wait to be scaled
constexpr int64_t kFewestRows = 4;      // below this, AVX-512 is faster

struct alignas(64) Workspace {
  uint8_t b[2][kChunkColumns * kTileRows];     // [tile][cols/4][16][4]
  int8_t a[kTileRows][kChunkColumns];          // the last rows, padded with zeros to a full tile
  int32_t c[kChunkGroups][4][kTileRows * 16];  // [group][2 * row tile + column tile][16][16]
  int32_t correction[kChunkGroups][2 * kTileRows];
  int32_t run_sums[2][kLongBlock][16];  // q4_steps: [tile][row][output], of the current run
};

// Columns [0, columns) of a tile to unsigned bytes, zeros up to a multiple of step: a zero weight
// makes whatever stands in the activations there harmless.
struct Q4 {
  static constexpr bool kSteps = false;
  static constexpr int kOffset = 8;
  static void unpack(const uint8_t* tile_codes, int64_t first, int64_t columns, int64_t padded,
                     uint8_t* out) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const uint8_t* codes = tile_codes + first * 8;
    for (int64_t c = 0; c < columns; c += 8) {
      const __m512i bytes = _mm512_loadu_si512(codes + c * 8);
      _mm512_store_si512(out + c * 16, _mm512_and_si512(bytes, nibble));
      _mm512_store_si512(out + c * 16 + 64, _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble));
    }
    for (int64_t c = columns; c < padded; c += 4) {
      _mm512_store_si512(out + c * 16, _mm512_setzero_si512());
    }
  }
  static int64_t tile_bytes(int64_t cols) { return cols * 8; }
};

struct Q4Steps : Q4 {
  static constexpr bool kSteps = true;
};

struct Q8 {
  static constexpr bool kSteps = false;
  static constexpr int kOffset = 128;
  static void unpack(const uint8_t* tile_codes, int64_t first, int64_t columns, int64_t padded,
                     uint8_t* out) {
    const uint8_t* codes = tile_codes + first * 16;
    for (int64_t c = 0; c < columns; c += 4) {
      _mm512_store_si512(out + c * 16, _mm512_loadu_si512(codes + c * 16));
    }
    for (int64_t c = columns; c < padded; c += 4) {
      _mm512_store_si512(out + c * 16, _mm512_setzero_si512());
    }
  }
  static int64_t tile_bytes(int64_t cols) { return cols * 16; }
};

// Rows of activations as tiles: where each tile starts, and the bytes between its rows.
struct Rows {
  const int8_t* start[2];
  int64_t stride[2];
};

// Adds `columns` columns to the sums of MT × NT tiles.
template <int MT, int NT>
inline void multiply(const Rows& a, const uint8_t* b0, const uint8_t* b1, int64_t columns,
                     int64_t step) {
  for (int64_t c = 0; c < columns; c += step) {
    _tile_loadd(4, a.start[0] + c, a.stride[0]);
    _tile_loadd(6, b0 + c * 16, 64);
    _tile_dpbsud(0, 4, 6);
    if constexpr (NT == 2) {
      _tile_loadd(7, b1 + c * 16, 64);
      _tile_dpbsud(1, 4, 7);
    }
    if constexpr (MT == 2) {
      _tile_loadd(5, a.start[1] + c, a.stride[1]);
      _tile_dpbsud(2, 5, 6);
    }
    if constexpr (MT == 2 && NT == 2) _tile_dpbsud(3, 5, 7);
  }
}

template <int MT, int NT>
inline void clear_sums() {
  _tile_zero(0);
  if constexpr (NT == 2) _tile_zero(1);
  if constexpr (MT == 2) _tile_zero(2);
  if constexpr (MT == 2 && NT == 2) _tile_zero(3);
}

template <int MT, int NT>
inline void store_sums(int32_t (*c)[kTileRows * 16]) {
  _tile_stored(0, c[0], 64);
  if constexpr (NT == 2) _tile_stored(1, c[1], 64);
  if constexpr (MT == 2) _tile_stored(2, c[2], 64);
  if constexpr (MT == 2 && NT == 2) _tile_stored(3, c[3], 64);
}

// One call's matrices, and where the current chunk of groups stands.
struct Job {
  const QuantizedRows& x;
  const PackedMatrix& w;
  const float* bias;
  float* y;
  int64_t ldy;
  int64_t step, groups;
  int64_t first_group = 0, chunk_groups = 0;
};

// The sum of a group's products for row `r` of a tile.
inline __m512i group_sum(const Workspace& work, int64_t g, int row_tile, int column_tile, int r) {
  const int32_t* sums = work.c[g][2 * row_tile + column_tile] + r * 16;
  const int32_t correction = work.correction[g][row_tile * kTileRows + r];
  return _mm512_sub_epi32(_mm512_load_si512(sums), _mm512_set1_epi32(correction));
}

// Scales the waiting sums of one tile and adds them to y, which holds the sums of earlier chunks;
// the last chunk applies the activations' scales and the bias.
inline void scale_sums(const Job& job, Workspace& work, int row_tile, int column_tile,
                       int64_t first_row, int64_t rows, int64_t tile) {
  const int64_t left = job.w.rows - tile * kTileRows;
  const __mmask16 lanes = first_lanes(left < kTileRows ? left : kTileRows);
  float* y = job.y + first_row * job.ldy + tile * kTileRows;
  HalfScales scales(job.w, tile, 1, job.first_group);
  F acc[kTileRows];
  SATCHEL_UNROLL
  for (int r = 0; r < kTileRows; ++r) {
    acc[r] = job.first_group > 0 && r < rows ? _mm512_maskz_loadu_ps(lanes, y + r * job.ldy)
                                             : broadcast(0.0f);
  }
  for (int64_t g = 0; g < job.chunk_groups; ++g) {
    const F scale = scales.at(0);
    scales.next();
    SATCHEL_UNROLL
    for (int r = 0; r < kTileRows; ++r) {
      const __m512i dot = group_sum(work, g, row_tile, column_tile, r);
      acc[r] = fma(_mm512_cvtepi32_ps(dot), scale, acc[r]);
    }
  }
  const bool last = job.first_group + job.chunk_groups == job.groups;
  const F offset = last && job.bias != nullptr
                       ? _mm512_maskz_loadu_ps(lanes, job.bias + tile * kTileRows)
                       : broadcast(0.0f);
  SATCHEL_UNROLL
  for (int r = 0; r < kTileRows; ++r) {
    if (r >= rows) continue;
    const F result = last ? acc[r] * broadcast(job.x.scales[first_row + r]) + offset : acc[r];
    _mm512_mask_storeu_ps(y + r * job.ldy, lanes, result);
  }
}

// The same of q4_steps, where sums wait as whole numbers for the end of their run, as in
// avx512_steps.inl: y holds those of earlier runs. Chunks end where runs do.
inline void scale_step_sums(const Job& job, Workspace& work, int row_tile, int column_tile,
                            int64_t first_row, int64_t rows, int64_t tile) {
  const int64_t run_groups = kRunColumns / job.w.group, first = job.first_group % run_groups;
  const int64_t end = job.first_group + job.chunk_groups;
  const bool last = end == job.groups, ends_run = last || end % run_groups == 0;
  const auto* scales = reinterpret_cast<const int8_t*>(job.w.scales + tile * scales_in_tile(job.w));
  scales += job.first_group / run_groups * (run_groups * kTileRows + kTileRows * sizeof(float));
  const F step = load(reinterpret_cast<const float*>(scales));
  const int8_t* multiples = scales + kTileRows * sizeof(float) + first * kTileRows;
  const int64_t left = job.w.rows - tile * kTileRows;
  const __mmask16 lanes = first_lanes(left < kTileRows ? left : kTileRows);
  const F offset = last && job.bias != nullptr
                       ? _mm512_maskz_loadu_ps(lanes, job.bias + tile * kTileRows)
                       : broadcast(0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    int32_t* waiting = work.run_sums[column_tile][first_row + r];
    __m512i sum = first > 0 ? _mm512_load_si512(waiting) : _mm512_setzero_si512();
    for (int64_t g = 0; g < job.chunk_groups; ++g) {
      const __m512i multiple = _mm512_cvtepi8_epi32(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(multiples + g * kTileRows)));
      const __m512i dot = group_sum(work, g, row_tile, column_tile, static_cast<int>(r));
      sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(dot, multiple));
    }
    if (!ends_run) {
      _mm512_store_si512(waiting, sum);
      continue;
    }
    float* y = job.y + (first_row + r) * job.ldy + tile * kTileRows;
    const F before =
        job.first_group >= run_groups ? _mm512_maskz_loadu_ps(lanes, y) : broadcast(0.0f);
    const F acc = fma(_mm512_cvtepi32_ps(sum), step, before);
    const F result = last ? acc * broadcast(job.x.scales[first_row + r]) + offset : acc;
    _mm512_mask_storeu_ps(y, lanes, result);
  }
}

// Up to 32 rows of activations against NT tiles, for the groups of the current chunk.
template <class Code, int MT, int NT>
void multiply_rows(const Job& job, Workspace& work, const uint8_t* const* codes, bool unpacked,
                   int64_t first_row, int64_t rows, int64_t tile) {
  const QuantizedRows& x = job.x;
  const int64_t group = job.w.group, last_rows = rows - (MT - 1) * kTileRows;
  for (int64_t g = 0; g < job.chunk_groups; ++g) {
    const int64_t group_start = (job.first_group + g) * group;
    clear_sums<MT, NT>();
    for (int64_t done = 0; done < group; done += kChunkColumns) {
      const int64_t columns = group - done < kChunkColumns ? group - done : kChunkColumns;
      const int64_t padded = (columns + job.step - 1) / job.step * job.step;
      // A group longer than the buffer is unpacked piece by piece.
      if (!unpacked) {
        for (int t = 0; t < NT; ++t) {
          Code::unpack(codes[t], group_start + done, columns, padded, work.b[t]);
        }
      }
      const int8_t* start = x.codes + first_row * x.stride + group_start + done;
      Rows a = {{start, start + kTileRows * x.stride}, {x.stride, x.stride}};
      if (last_rows < kTileRows) {
        const int8_t* from = a.start[MT - 1];
        for (int64_t r = 0; r < last_rows; ++r) {
          std::memcpy(work.a[r], from + r * x.stride, static_cast<size_t>(padded));
        }
        a.start[MT - 1] = work.a[0];
        a.stride[MT - 1] = kChunkColumns;
      }
      const int64_t at = unpacked ? g * group * kTileRows : 0;
      finish_writes(&work);
      multiply<MT, NT>(a, work.b[0] + at, work.b[1] + at, columns, job.step);
    }
    store_sums<MT, NT>(work.c[g]);
    for (int64_t r = 0; r < MT * kTileRows; ++r) {
      work.correction[g][r] =
          r < rows ? Code::kOffset * x.sums[(first_row + r) * job.groups + job.first_group + g] : 0;
    }
  }
  for (int mt = 0; mt < MT; ++mt) {
    for (int nt = 0; nt < NT; ++nt) {
      const int64_t in_tile = mt == MT - 1 ? last_rows : kTileRows;
      const auto scale = Code::kSteps ? scale_step_sums : scale_sums;
      scale(job, work, mt, nt, first_row + mt * kTileRows, in_tile, tile + nt);
    }
  }
}

template <class Code, int NT>
void multiply_tiles(Job& job, Workspace& work, int64_t tile) {
  const int64_t group = job.w.group;
  const bool unpack_first = group <= kChunkColumns;
  int64_t chunk = unpack_first ? kChunkColumns / group : 1;
  chunk = chunk < kChunkGroups ? chunk : kChunkGroups;
  const uint8_t* codes[NT];
  for (int t = 0; t < NT; ++t) codes[t] = job.w.codes + (tile + t) * Code::tile_bytes(job.w.cols);

  for (job.first_group = 0; job.first_group < job.groups; job.first_group += chunk) {
    const int64_t left = job.groups - job.first_group;
    job.chunk_groups = left < chunk ? left : chunk;
    if (unpack_first) {
      const int64_t columns = job.chunk_groups * group;
      const int64_t padded = (columns + job.step - 1) / job.step * job.step;
      for (int t = 0; t < NT; ++t) {
        Code::unpack(codes[t], job.first_group * group, columns, padded, work.b[t]);
      }
    }
    for (int64_t row = 0; row < job.x.rows; row += 2 * kTileRows) {
      const int64_t rest = job.x.rows - row;
      if (rest > kTileRows) {
        const int64_t rows = rest < 2 * kTileRows ? rest : 2 * kTileRows;
        multiply_rows<Code, 2, NT>(job, work, codes, unpack_first, row, rows, tile);
      } else {
        multiply_rows<Code, 1, NT>(job, work, codes, unpack_first, row, rest, tile);
      }
    }
  }
}

// Groups that a tile step divides, or one group per row: its last step may read the zeros that
// pad each row of activations to 64.
inline bool fits_tiles(const PackedMatrix& w) {
  return w.group == 32 || w.group % 64 == 0 || w.group == w.cols;
}

template <class Code>
void linear(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
            int64_t tile_end, float* y, int64_t ldy) {
  Job job{x, w, bias, y, ldy, w.group == 32 ? 32 : 64, w.cols / w.group};
  Workspace work;
  std::memset(work.a, 0, sizeof work.a);
  finish_writes(x.codes);
  // Tile state belongs to the thread, so each call sets it up and gives it back.
  configure_tiles(job.step);
  int64_t tile = tile_begin;
  for (; tile + 2 <= tile_end; tile += 2) multiply_tiles<Code, 2>(job, work, tile);
  if (tile < tile_end) multiply_tiles<Code, 1>(job, work, tile);
  _tile_release();
}

}  // namespace

void amx_linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                   int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  if (amx_whole_fits(x, w)) {
    amx_whole_linear_q4(x, w, bias, tile_begin, tile_end, y, ldy);
  } else if (x.rows < kFewestRows || !fits_tiles(w)) {
    avx512_table.linear_q4(x, w, bias, tile_begin, tile_end, y, ldy);
  } else if (w.encoding != MatrixEncoding::q4_steps) {
    linear<Q4>(x, w, bias, tile_begin, tile_end, y, ldy);
  } else {
    for (int64_t row = 0; row < x.rows; row += kLongBlock) {
      QuantizedRows part = x;
      part.rows = lesser(kLongBlock, x.rows - row);
      part.codes += row * x.stride, part.scales += row, part.sums += row * (x.cols / x.group);
      linear<Q4Steps>(part, w, bias, tile_begin, tile_end, y + row * ldy, ldy);
    }
  }
}

void amx_linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                   int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  if (x.rows < kFewestRows || !fits_tiles(w)) {
    avx512_table.linear_q8(x, w, bias, tile_begin, tile_end, y, ldy);
  } else {
    linear<Q8>(x, w, bias, tile_begin, tile_end, y, ldy);
  }
}

bool amx_self_test() {
  alignas(64) int8_t a[16][64];
  alignas(64) uint8_t b[16][64];  // [columns / 4][16 outputs][4]
  alignas(64) int32_t c[16][16];
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 64; ++j) {
      a[i][j] = static_cast<int8_t>((i * 37 + j * 11) % 255 - 127);
      b[i][j] = static_cast<uint8_t>((i * 29 + j * 7 + 3) % 256);
    }
  }
  multiply_once(a, b, c, [] { _tile_dpbsud(0, 4, 6); });
  for (int row = 0; row < 16; ++row) {
    for (int output = 0; output < 16; ++output) {
      int32_t expected = 0;
      for (int k = 0; k < 64; ++k) expected += a[row][k] * b[k / 4][output * 4 + k % 4];
      if (c[row][output] != expected) return false;
    }
  }
  return true;
}

}  // namespace satchel
