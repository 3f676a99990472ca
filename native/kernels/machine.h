// What the CPU offers and why AMX is or is not used, for `satchel doctor`.
#pragma once

#include <string>
#include <vector>

namespace satchel {

// The instruction sets that matter here and that the operating system enables.
std::vector<std::string> cpu_features();

// "available", or "not used: " and the reason.
std::string amx_status();

}  // namespace satchel
