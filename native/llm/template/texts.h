// Methods of texts, as Python has them.
#pragma once

#include <string>
#include <string_view>

#include "functions.h"

namespace satchel::llm::jinja {

// Only letters of ASCII have cases here; others are an error.
std::string cased(std::string_view text, bool up);
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);
// `most` times at most; below 0: all.
std::string replaced(const std::string& text, const std::string& old, const std::string& by,
                     int64_t most, Budget& budget);
std::string joined(const List& items, const std::string& mark, bool texts_only, Budget& budget);
std::string indented(const std::string& text, const Arguments& given, Budget& budget);
// Without spaces, or some characters, at its ends.
std::string stripped(std::string_view text, const std::string* characters, bool left, bool right);
Value call_text(const std::string& text, const std::string& name, const Arguments& given,
                Budget& budget);

}  // namespace satchel::llm::jinja
