// Characters of UTF-8 text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace satchel::llm {

inline constexpr uint32_t kReplacement = 0xFFFD;

struct Character {
  uint32_t code;
  uint32_t length;  // in bytes
};

// The character at `at` of a text that is known to be UTF-8.
inline Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1fu) << 6 | (byte(1) & 0x3fu), 2};
  if (first < 0xf0) return {(first & 0xfu) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu), 3};
  return {(first & 7u) << 18 | (byte(1) & 0x3fu) << 12 | (byte(2) & 0x3fu) << 6 | (byte(3) & 0x3fu),
          4};
}

// Where the character before `at` begins; `at` is not 0.
inline size_t before(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80);
  return at;
}

void append_character(std::string& text, uint32_t code);

// How many bytes of a text are UTF-8 and whole. `*bad` is how many behind these never become a
// character, whatever follows; 0 if more bytes could complete one.
size_t valid_utf8(std::string_view text, size_t* bad);

inline bool is_utf8(std::string_view text) {
  size_t bad = 0;
  return valid_utf8(text, &bad) == text.size();
}

}  // namespace satchel::llm
