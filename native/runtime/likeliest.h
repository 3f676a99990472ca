// The token that greedy text takes.
#pragma once

#include <cstdint>
#include <span>

namespace satchel {

// The first of the largest logits; -1 where that means nothing: there are none, one is no number,
// or the largest is not finite.
int64_t likeliest(std::span<const float> logits);

}  // namespace satchel
