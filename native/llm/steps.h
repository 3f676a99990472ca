// What happens to a text before the model sees it: normalisers change it, pre-tokenisers cut it in
// pieces. The numbers are those of satchel/llm/compiled/steps.py.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer_tables.h"

namespace satchel::llm {

enum class NormalizerKind : uint32_t { replace_text, replace_regex, prepend, strip, form };
enum class SplitKind : uint32_t { text, regex, character_class, prefix_space, metaspace };
enum class Behavior : uint32_t { removed, isolated, with_previous, with_next, contiguous };
enum class PrependScheme : uint32_t { never, always, first };

struct Counts {
  size_t strings, patterns, classes;
};

bool valid_normalizer(const Step& step, const Counts& counts);
bool valid_split(const Step& step, const Counts& counts);

// A text after all normalisers.
std::string normalize(const TokenizerTables& tables, std::string_view text);

// Cuts texts; the pieces are views of the text or of this object's own strings.
class Splitter {
 public:
  explicit Splitter(const TokenizerTables& tables) : tables_(tables) {}

  // The pieces of a text; `at_start` if no text or token comes before it.
  const std::vector<std::string_view>& split(std::string_view text, bool at_start);

 private:
  // A part of a text, and whether it is what a pattern looks for.
  struct Part {
    size_t begin, end;
    bool matches;
  };

  void apply(const Step& step, std::string_view piece, bool at_start);
  void find_text(std::string_view piece, std::string_view wanted);
  void find_class(std::string_view piece, uint32_t number);
  void fill_gaps(std::string_view piece);
  void emit(std::string_view piece, Behavior behavior);
  void put(std::string_view piece, size_t begin, size_t end) {
    if (begin < end) next_.push_back(piece.substr(begin, end - begin));
  }

  const TokenizerTables& tables_;
  std::deque<std::string> own_;
  std::vector<std::string_view> pieces_, next_;
  std::vector<Match> matches_;
  std::vector<Part> parts_;
};

}  // namespace satchel::llm
