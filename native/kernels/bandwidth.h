// How fast this machine reads memory: the limit of token-by-token generation.
#pragma once

#include <cstddef>

namespace satchel {

// Bytes per second that `threads` threads read together from a buffer of `bytes`, the best of
// `repeats` passes in each of two ways. The buffer should be larger than the last-level cache.
double measure_read_bandwidth(int threads, size_t bytes = size_t{256} << 20, int repeats = 5);

}  // namespace satchel
