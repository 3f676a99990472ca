// What the AMX files share: the tile configuration and the shape of a job.
#pragma once

#include "lanes_avx512.h"
#include "tile_config.h"

namespace satchel {
namespace {

// The tile intrinsics of some compilers do not tell that they read memory.
inline void finish_writes(const void* memory) { __asm__ volatile("" : : "r"(memory) : "memory"); }

// Tiles 0-3 are sums, 4 and 5 activations, `rows` of them, 6 and 7 weights, `step` columns wide.
inline void configure_tiles(int64_t step, int64_t rows = 16) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    const bool activations = i == 4 || i == 5, weights = i >= 6;
    config.row_bytes[i] = static_cast<uint16_t>(activations ? step : 64);
    config.rows[i] = static_cast<uint8_t>(weights ? step / 4 : rows);
  }
  finish_writes(&config);
  _tile_loadconfig(&config);
}

// One product of whole tiles, as `multiply` makes it of the tiles 4 and 6 in 0, for self-tests.
template <class Multiply>
inline void multiply_once(const void* left, const void* right, void* product, Multiply multiply) {
  finish_writes(left);
  finish_writes(right);
  configure_tiles(64);
  _tile_zero(0);
  _tile_loadd(4, left, 64);
  _tile_loadd(6, right, 64);
  multiply();
  _tile_stored(0, product, 64);
  _tile_release();
  finish_writes(product);
}

}  // namespace

// 4-bit weights in groups that divide kRunColumns, for many rows; see amx_whole.cpp.
bool amx_whole_fits(const QuantizedRows& x, const PackedMatrix& w);
void amx_whole_linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                         int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);

}  // namespace satchel
