// What ldtilecfg reads: the sizes of the tiles. They are never taken from CPUID's palette leaf,
// which some hypervisors leave empty.
#pragma once

#include <cstdint>

namespace satchel {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace satchel
