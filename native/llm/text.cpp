#include "text.h"

namespace satchel::llm {

void append_character(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6), put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
  }
}

size_t valid_utf8(std::string_view text, size_t* bad) {
  *bad = 0;
  size_t at = 0;
  while (at < text.size()) {
    const auto first = static_cast<uint8_t>(text[at]);
    if (first < 0x80) {
      ++at;
      continue;
    }
    if (first < 0xc2 || first > 0xf4) {
      *bad = 1;
      return at;
    }
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    // The second byte's range excludes overlong forms, surrogates and what is past U+10FFFF.
    uint8_t low = 0x80, high = 0xbf;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    for (size_t i = 1; i < length; ++i) {
      if (at + i == text.size()) return at;
      const auto next = static_cast<uint8_t>(text[at + i]);
      if (next < low || next > high) {
        *bad = i;
        return at;
      }
      low = 0x80, high = 0xbf;
    }
    at += length;
  }
  return at;
}

}  // namespace satchel::llm
