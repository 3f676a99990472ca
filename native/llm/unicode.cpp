#include "unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <vector>

#include "text.h"

namespace satchel::llm {

namespace {

#include "unicode_data.inl"

constexpr uint32_t kLast = 0x10FFFF;
constexpr uint8_t kMayChange = 32;  // by NFC, beside the category
constexpr uint32_t kHangulBase = 0xAC00, kHangulCount = 11172;
constexpr uint32_t kLeadBase = 0x1100, kVowelBase = 0x1161, kFinalBase = 0x11A7;
constexpr uint32_t kLeads = 19, kVowels = 21, kFinals = 28;

// The runs of the file, spread out: two steps to a character's byte.
class CategoryTable {
 public:
  CategoryTable() {
    std::vector<std::array<uint8_t, kBlock>> blocks;
    size_t run = 0;
    for (uint32_t code = 0; code <= kLast; code += kBlock) {
      std::array<uint8_t, kBlock> block;
      for (uint32_t i = 0; i < kBlock; ++i) {
        while (run + 1 < std::size(kCategoryRuns) && kCategoryRuns[run + 1] >> 6 <= code + i) ++run;
        block[i] = static_cast<uint8_t>(kCategoryRuns[run] & 63);
      }
      if (blocks.empty() || blocks.back() != block) blocks.push_back(block);
      index_[code / kBlock] = static_cast<uint16_t>(blocks.size() - 1);
    }
    blocks_ = std::move(blocks);
  }

  uint8_t at(uint32_t code) const {
    if (code > kLast) return kCategories - 1;
    return blocks_[index_[code / kBlock]][code % kBlock];
  }

 private:
  static constexpr uint32_t kBlock = 128;
  std::array<uint16_t, (kLast + 1) / kBlock> index_;
  std::vector<std::array<uint8_t, kBlock>> blocks_;
};

const CategoryTable& categories() {
  static const CategoryTable table;
  return table;
}

uint32_t combining_class(uint32_t code) {
  const auto* above = std::upper_bound(std::begin(kCombiningRuns), std::end(kCombiningRuns), code,
                                       [](uint32_t c, uint32_t run) { return c < run >> 8; });
  return *(above - 1) & 0xff;
}

void append_decomposed(std::u32string& to, uint32_t code, bool compatible) {
  if (code >= kHangulBase && code < kHangulBase + kHangulCount) {
    const uint32_t index = code - kHangulBase;
    to.push_back(kLeadBase + index / (kVowels * kFinals));
    to.push_back(kVowelBase + index % (kVowels * kFinals) / kFinals);
    if (index % kFinals != 0) to.push_back(kFinalBase + index % kFinals);
    return;
  }
  size_t low = 0, high = std::size(kDecompositions) / 3;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (kDecompositions[middle * 3] < code) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low < std::size(kDecompositions) / 3 && kDecompositions[low * 3] == code) {
    const uint32_t place = kDecompositions[low * 3 + (compatible ? 2 : 1)];
    for (uint32_t i = 0; i < (place & 31); ++i) to.push_back(kDecomposed[(place >> 5) + i]);
    if ((place & 31) != 0) return;
  }
  to.push_back(code);
}

// Marks behind a character go by their classes, and stay in order within a class.
void order_marks(std::u32string& text) {
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    if (end - i > 1) {
      const auto begin = text.begin() + static_cast<std::ptrdiff_t>(i);
      std::stable_sort(
          begin, text.begin() + static_cast<std::ptrdiff_t>(end),
          [](uint32_t a, uint32_t b) { return combining_class(a) < combining_class(b); });
    }
    i = end + 1;
  }
}

uint32_t composed(uint32_t first, uint32_t second) {  // 0 if the two make none
  if (first >= kLeadBase && first < kLeadBase + kLeads && second >= kVowelBase &&
      second < kVowelBase + kVowels) {
    return kHangulBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kFinals;
  }
  if (first >= kHangulBase && first < kHangulBase + kHangulCount &&
      (first - kHangulBase) % kFinals == 0 && second > kFinalBase &&
      second < kFinalBase + kFinals) {
    return first + (second - kFinalBase);
  }
  size_t low = 0, high = std::size(kCompositions) / 3;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const uint32_t a = kCompositions[middle * 3], b = kCompositions[middle * 3 + 1];
    if (a < first || (a == first && b < second)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == std::size(kCompositions) / 3 || kCompositions[low * 3] != first ||
      kCompositions[low * 3 + 1] != second) {
    return 0;
  }
  return kCompositions[low * 3 + 2];
}

void compose(std::u32string& text) {
  size_t written = 0, starter = std::u32string::npos;
  uint32_t last_class = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const uint32_t code = text[i], mark = combining_class(code);
    const bool adjacent = starter != std::u32string::npos && starter + 1 == written;
    if (starter != std::u32string::npos && (adjacent || last_class < mark)) {
      if (const uint32_t together = composed(text[starter], code); together != 0) {
        text[starter] = together;
        continue;
      }
    }
    if (mark == 0) starter = written;
    last_class = mark;
    text[written++] = code;
  }
  text.resize(written);
}

bool is_nfc(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    if (c.code >= 0x300 && (categories().at(c.code) & kMayChange) != 0) return false;
    i += c.length;
  }
  return true;
}

}  // namespace

uint32_t category(uint32_t code) { return categories().at(code) & (kMayChange - 1); }

bool is_word(uint32_t code) {
  // Lu Ll Lt Lm Lo Mn Mc Me Nd Nl, Pc; and letters in circles and squares.
  const uint32_t kind = category(code);
  const auto within = [&](uint32_t first, uint32_t last) { return code >= first && code <= last; };
  return kind <= 9 || kind == 11 || within(0x24b6, 0x24e9) || within(0x1f130, 0x1f149) ||
         within(0x1f150, 0x1f169) || within(0x1f170, 0x1f189);
}

std::string normalized(std::string_view text, NormalForm form) {
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  if (form == NormalForm::nfc && is_nfc(text)) return std::string(text);
  std::u32string codes;
  codes.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    append_decomposed(codes, c.code, compatible);
    i += c.length;
  }
  order_marks(codes);
  if (composes) compose(codes);
  std::string result;
  result.reserve(text.size());
  for (const uint32_t code : codes) append_character(result, code);
  return result;
}

}  // namespace satchel::llm
