// Scales that are whole multiples of a step: see shaders/multiples.glsl.
#pragma once

#include "../runtime/program_file.h"

namespace satchel::vulkan {

// What is known of the scales of weights of 4 bits.
struct Multiples {
  bool are_small = true;  // of a step, -15 to 16, so that a code times its multiple is a byte
  // And so near is each run's step to the next one's that a sum of bytes' products fits in 32 bits
  // when it is brought from the one to the other.
  bool have_near_steps = true;
};

Multiples multiples_of(const WeightEntry& weight);

}  // namespace satchel::vulkan
