#include "likeliest.h"

#include <algorithm>
#include <cmath>

namespace satchel {

// Lanes of their own, so that this is done with vectors.
int64_t likeliest(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  float largest[kLanes];
  std::fill_n(largest, kLanes, -INFINITY);
  bool unordered = false;
  const auto look = [&](size_t lane, float value) {
    largest[lane] = value > largest[lane] ? value : largest[lane];
    unordered |= value != value;
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) look(lane, logits[i + lane]);
  }
  for (; i < logits.size(); ++i) look(0, logits[i]);
  const float top = *std::max_element(largest, largest + kLanes);
  if (unordered || !std::isfinite(top)) return -1;
  return std::find(logits.begin(), logits.end(), top) - logits.begin();
}

}  // namespace satchel
