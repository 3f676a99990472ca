// How shaders go over arrays of several dimensions.
#pragma once

#include "op.h"

namespace satchel::vulkan {

// Dimensions with the strides of two operands, those that lie behind one another in both as one.
struct Walk {
  uint32_t shape[4], a[4], b[4];
};

inline std::optional<Walk> walk(const int64_t* shape, size_t rank, const int64_t* a,
                                const int64_t* b) {
  int64_t sizes[kMaxRank], as[kMaxRank], bs[kMaxRank];
  size_t count = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (shape[i] == 1) continue;
    if (count > 0 && as[count - 1] == a[i] * shape[i] && bs[count - 1] == b[i] * shape[i]) {
      sizes[count - 1] *= shape[i], as[count - 1] = a[i], bs[count - 1] = b[i];
    } else {
      sizes[count] = shape[i], as[count] = a[i], bs[count] = b[i];
      ++count;
    }
  }
  if (count > 4) return std::nullopt;
  Walk found{{1, 1, 1, 1}, {}, {}};
  for (size_t i = 0; i < count; ++i) {
    found.shape[4 - count + i] = word(sizes[i]);
    found.a[4 - count + i] = word(as[i]), found.b[4 - count + i] = word(bs[i]);
  }
  return found;
}

inline void dense_strides(const Tensor& t, int64_t* steps) {
  for (size_t i = 0; i < t.rank; ++i) steps[i] = t.product(i + 1, t.rank);
}

inline constexpr const char* kTooManyDimensions =
    "the GPU takes at most four dimensions that differ";

}  // namespace satchel::vulkan
