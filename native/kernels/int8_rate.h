// How fast this machine multiplies bytes: the limit of reading a prompt.
#pragma once

#include <string>

namespace satchel {

// 8-bit multiply-accumulates per second of `threads` threads together with the instructions of
// one table (avx2, avx512 or amx), operands in registers, the best of `repeats` passes. Throws
// std::invalid_argument for a table that this CPU cannot run or that has no such loop.
double measure_int8_rate(int threads, const std::string& table, int repeats = 5);

}  // namespace satchel
