// What is known about characters: their categories, and the normal forms of texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace satchel::llm {

enum class NormalForm : uint32_t { nfc = 0, nfd = 1, nfkc = 2, nfkd = 3 };
inline constexpr uint32_t kNormalForms = 4;
inline constexpr uint32_t kCategories = 30;

// The general category, by its number in tools/unicode_tables.py.
uint32_t category(uint32_t code);

// Unicode's White_Space.
inline bool is_space(uint32_t code) {
  if (code < 0x80) return code == 32 || (code >= 9 && code <= 13);
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

// A letter, mark, digit or connector: what words are made of.
bool is_word(uint32_t code);

// `text` is UTF-8.
std::string normalized(std::string_view text, NormalForm form);

}  // namespace satchel::llm
