#include "multiples.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "../kernels/kernels.h"

namespace satchel::vulkan {

Multiples multiples_of(const WeightEntry& w) {
  if (w.kind != WeightKind::matrix_q4_steps) return {false, false};
  constexpr double largest_product = 8 * 127, largest_sum = 2.1e9;
  const int64_t rows = w.shape[0], cols = w.shape[1];
  Multiples found;
  const uint8_t* at = w.scales;
  for (int64_t first_row = 0; first_row < rows; first_row += kTileRows) {
    float step[kTileRows] = {}, next[kTileRows];
    double sum[kTileRows] = {};  // the largest that there can be
    for (int64_t first = 0; first < cols; first += kRunColumns) {
      std::memcpy(next, at, sizeof next);
      at += sizeof next;
      const int64_t groups = std::min(kRunColumns, cols - first) / w.group;
      int32_t sizes[kTileRows] = {};
      for (int64_t i = 0; i < groups * kTileRows; ++i) {
        const auto multiple = static_cast<int8_t>(at[i]);
        if (multiple < -15 || multiple > 16) return {false, false};
        sizes[i % kTileRows] += std::abs(multiple);
      }
      at += groups * kTileRows;
      for (int64_t row = 0; row < std::min(kTileRows, rows - first_row); ++row) {
        if (first > 0) sum[row] *= std::abs(static_cast<double>(step[row]) / next[row]);
        sum[row] += sizes[row] * largest_product * static_cast<double>(w.group);
        if (!(sum[row] <= largest_sum)) found.have_near_steps = false;
      }
      std::memcpy(step, next, sizeof step);
    }
  }
  return found;
}

}  // namespace satchel::vulkan
