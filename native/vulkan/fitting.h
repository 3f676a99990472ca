// What of a program a device's memory holds.
#pragma once

#include <cstdint>
#include <string>

#include "../runtime/program.h"

namespace satchel::vulkan {

// The layer that a weight of a language model is of: the first number that stands alone between the
// dots of its name; -1 if there is none.
int64_t layer_of(const std::string& name);

struct FittingLayers {
  int64_t count, all;
  uint64_t weight_bytes;  // of all
};
// How many layers of a program there is memory for, from the first one on, if not for all.
FittingLayers fitting_layers(const Program& program, uint64_t memory_left);

// What the caches of all sequences may take: a share of the memory that is left, and of each cache
// what a shader can see at once. 0: there are none.
uint64_t cache_bytes(const Program& program, uint64_t largest_binding, uint64_t memory_left);

}  // namespace satchel::vulkan
