// Where qconv2d and qlinear have their inputs, and where their check leaves attributes.
#pragma once

#include "conv_panel.h"

namespace satchel::integer_layer {

inline constexpr size_t kScale = 2, kBias = 3, kResidual = 4;  // inputs
inline constexpr size_t kXZero = kGroups + 1, kOutZero = kGroups + 2, kResidualZero = kGroups + 3;
inline constexpr size_t kInverseOutScale = 0, kResidualScale = 1;  // numbers

}  // namespace satchel::integer_layer
