// AMX for layers of unsigned codes and signed 8-bit weights: 16 × 16 outputs and 64 columns per
// instruction. Weights and codes are read where they lie; only the last columns, where they are no
// full step, are copied and filled up with zeros.

#include "amx_tiles.h"

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

struct alignas(64) Buffers {
  uint8_t a[2][kTileRows * kStepColumns];  // the last columns of two tiles of rows
  int8_t b[2][kStepBytes];                 // the last steps of two tiles of weights
  int32_t c[4][kTileRows * 16];            // [2 * row tile + column tile][16][16]
};

// The sums of MT tiles of rows, which start at `rows`, and NT tiles of weights.
template <int MT, int NT>
void multiply(const uint8_t* x, int64_t ldx, const int64_t* rows, const IntegerMatrix& w,
              int64_t tile, Buffers& buffers) {
  const int64_t full = w.steps * 4 / kStepColumns, rest = w.steps * 4 % kStepColumns;
  const int64_t tile_bytes = w.steps * 4 * kTileRows;
  const uint8_t* a[2] = {x + rows[0] * ldx, x + rows[MT - 1] * ldx};
  const int8_t* b[2] = {w.codes + tile * tile_bytes, w.codes + (tile + NT - 1) * tile_bytes};
  if (rest > 0) {
    const __mmask64 there = ~0ull >> (64 - rest);
    for (int mt = 0; mt < MT; ++mt) {
      for (int64_t r = 0; r < kTileRows; ++r) {
        _mm512_store_si512(buffers.a[mt] + r * kStepColumns,
                           _mm512_maskz_loadu_epi8(there, a[mt] + r * ldx + full * kStepColumns));
      }
    }
    finish_writes(&buffers);
  }
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
  }
  if (rest > 0) add(buffers.a[0], buffers.a[1], kStepColumns, buffers.b[0], buffers.b[1]);
  _tile_stored(0, buffers.c[0], 64);
  if constexpr (NT == 2) _tile_stored(1, buffers.c[1], 64);
  if constexpr (MT == 2) _tile_stored(2, buffers.c[2], 64);
  if constexpr (MT == 2 && NT == 2) _tile_stored(3, buffers.c[3], 64);
  finish_writes(&buffers);
}

template <int NT>
void multiply_tiles(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                    const IntegerResult& result, int64_t tile, Buffers& buffers) {
  const int64_t full = w.steps * 4 / kStepColumns * kStepBytes, tile_bytes = w.steps * 4 * kTileRows;
  if (full < tile_bytes) {
    for (int nt = 0; nt < NT; ++nt) {
      std::memset(buffers.b[nt], 0, sizeof buffers.b[nt]);
      std::memcpy(buffers.b[nt], w.codes + (tile + nt) * tile_bytes + full,
                  static_cast<size_t>(tile_bytes - full));
    }
    finish_writes(&buffers);
  }
  // What is left of the rows is done with rows before them, whose results come out the same.
  for (int64_t row = 0; row < m; row += 2 * kTileRows) {
    const int64_t left = m - row;
    const bool two = left > kTileRows;
    const int64_t last = m - kTileRows;
    const int64_t rows[2] = {row < last ? row : last, row + kTileRows < last ? row + kTileRows : last};
    if (two) {
      multiply<2, NT>(x, ldx, rows, w, tile, buffers);
    } else {
      multiply<1, NT>(x, ldx, rows, w, tile, buffers);
    }
    for (int mt = 0; mt < (two ? 2 : 1); ++mt) {
      finish_rows<NT>(result, w, tile, rows[mt], kTileRows, {buffers.c[2 * mt], 16, 16 * kTileRows});
    }
  }
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
  int64_t tile = tile_begin;
  for (; tile + 2 <= tile_end; tile += 2) {
    multiply_tiles<2>(x, ldx, m, w, result, tile, buffers);
  }
  if (tile < tile_end) multiply_tiles<1>(x, ldx, m, w, result, tile, buffers);
  _tile_release();
}

}  // namespace satchel
