// Matches the regular expressions of tokenizers, which an export has compiled
// (satchel/llm/compiled/regex.py). It goes back where it was wrong, as Oniguruma does, so that it
// finds the same; its work is bounded, as a file may be hostile.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace satchel::llm {

// Eight numbers for each class: four of a bitmap of the characters below 128, a mask of
// categories, whether it is negated, first range, number of ranges.
class CharacterClasses {
 public:
  CharacterClasses() = default;
  CharacterClasses(std::span<const uint32_t> words, std::span<const uint32_t> ranges)
      : words_(words), ranges_(ranges) {}

  size_t size() const { return words_.size() / kWords; }
  bool valid() const;  // every range is there and in order
  bool has(uint32_t number, uint32_t code) const {
    const uint32_t* w = words_.data() + number * kWords;
    if (code < 128) return (w[code / 32] >> code % 32 & 1) != 0;
    return has_beyond_ascii(w, code);
  }

 private:
  static constexpr size_t kWords = 8;
  bool has_beyond_ascii(const uint32_t* words, uint32_t code) const;

  std::span<const uint32_t> words_, ranges_;
};

struct Match {
  size_t begin, end;
};

class Regex {
 public:
  Regex(std::span<const uint32_t> code, const CharacterClasses& classes)
      : code_(code), classes_(&classes) {}

  // Whether every instruction is whole and every jump leads to one.
  bool valid() const;

  // All matches in a text of UTF-8, as Oniguruma's find_iter gives them. Throws TokenizerError if
  // that takes too much work.
  void find_all(std::string_view text, std::vector<Match>& matches) const;

 private:
  struct Matcher;

  std::span<const uint32_t> code_;
  const CharacterClasses* classes_;
};

}  // namespace satchel::llm
