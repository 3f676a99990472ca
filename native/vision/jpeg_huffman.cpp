#include "jpeg.h"

namespace satchel::vision::jpeg {

HuffmanCode::HuffmanCode(std::span<const uint8_t, 16> counts, Bytes symbols) : is_there_(true) {
  uint32_t code = 0, index = 0;
  for (int length = 1; length <= kMostBits; ++length) {
    const uint32_t count = counts[static_cast<size_t>(length - 1)];
    first_[length] = code;
    count_[length] = count;
    index_[length] = index;
    if (code + count > 1u << length || index + count > symbols.size() || index + count > 256)
      throw ImageError("a table of codes is damaged");
    for (uint32_t i = 0; i < count; ++i, ++code, ++index) {
      symbols_[index] = symbols[index];
      if (length > kFastBits) continue;
      const uint32_t free = 1u << (kFastBits - length);
      for (uint32_t k = 0; k < free; ++k)
        fast_[(code << (kFastBits - length)) + k] = {symbols[index], static_cast<uint8_t>(length)};
    }
    code <<= 1;
  }
}

HuffmanCode::Entry HuffmanCode::find(uint32_t bits) const {
  const Entry& fast = fast_[bits >> (kMostBits - kFastBits)];
  if (fast.length != 0) return fast;
  for (int length = kFastBits + 1; length <= kMostBits; ++length) {
    const uint32_t place = (bits >> (kMostBits - length)) - first_[length];
    if (place < count_[length])
      return {symbols_[index_[length] + place], static_cast<uint8_t>(length)};
  }
  return {0, 0};
}

}  // namespace satchel::vision::jpeg
