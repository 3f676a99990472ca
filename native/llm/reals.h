// Numbers as text.
#pragma once

#include <string>

namespace satchel::llm {

// As Python's repr: the fewest digits that are read as the same number, and of those the nearest.
std::string real_repr(double value);

}  // namespace satchel::llm
