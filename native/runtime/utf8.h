// Texts from outside, proven to be UTF-8.
#pragma once

#include <cstdint>
#include <string_view>

namespace satchel {

// Whether a text is well-formed UTF-8 (no overlong forms, surrogates or numbers past U+10FFFF)
// without control characters.
inline bool is_printable_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) {
      return at < text.size() ? static_cast<uint8_t>(text[at]) : uint8_t{0};
    };
    const uint8_t first = byte(i);
    if (first < 0x80) {
      if (first < 0x20 || first == 0x7f) return false;
      ++i;
      continue;
    }
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4) return false;
    uint32_t code = first & (0xffu >> (length + 1));
    for (size_t k = 1; k < length; ++k) {
      const uint8_t next = byte(i + k);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3fu);
    }
    const uint32_t smallest = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
    if (code < smallest || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) || code < 0xa0)
      return false;
    i += length;
  }
  return true;
}

}  // namespace satchel
