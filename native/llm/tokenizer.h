// A tokenizer that lies compiled in a program: from text to tokens and back. Any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer_tables.h"

namespace satchel::llm {

using Tokens = std::vector<uint32_t>;

class Tokenizer {
 public:
  // `owner` keeps the section's memory. Throws FormatError if the section is not valid.
  Tokenizer(std::span<const uint8_t> section, uint64_t file_offset,
            std::shared_ptr<const void> owner);

  // The ids of a text alone, without BOS and the like. With `parse_special` off, the name of a
  // special token in the text is just text. Throws TokenizerError if the text is not UTF-8.
  Tokens encode(std::string_view text, bool parse_special = true) const;
  // With what plain text gets around it, by the tokenizer's habit.
  Tokens encode_prompt(std::string_view text) const;

  // The text of some ids; bytes that are no character come out as U+FFFD.
  std::string decode(std::span<const uint32_t> ids, bool skip_special = true) const;

  uint32_t size() const { return tables_.count; }
  // How many tokens there are: ids may have gaps.
  uint32_t tokens() const;
  bool exists(uint32_t id) const {
    return id < tables_.count && (tables_.flags(id) & kAbsentToken) == 0;
  }
  // What a token adds to a text, special ones as they are written; maybe half a character.
  std::string_view bytes_of(uint32_t id) const { return exists(id) ? tables_.text(id) : ""; }
  bool is_end(uint32_t id) const;
  // Whether decoding shows it.
  bool is_visible(uint32_t id) const {
    return id < tables_.count && (tables_.flags(id) & (kSpecialToken | kAbsentToken)) == 0;
  }
  const TokenizerTables& tables() const { return tables_; }

 private:
  class Encoder;

  TokenizerTables tables_;
  std::shared_ptr<const void> owner_;
};

// Turns one token after the other into text that will not change any more.
class TokenDecoder {
 public:
  // The text goes on from that of the tokens `after`. Special tokens are left out, but for those
  // that are `shown`.
  explicit TokenDecoder(const Tokenizer& tokenizer, std::span<const uint32_t> after = {},
                        bool skip_special = true, std::vector<uint32_t> shown = {});

  void push(uint32_t id, std::string& text);
  void finish(std::string& text);

 private:
  bool is_shown(uint32_t id) const;
  void end_bytes(std::string& text);
  void put(std::string_view piece, std::string& text);

  const Tokenizer& tokenizer_;
  bool skip_special_, at_start_;
  std::vector<uint32_t> shown_;
  uint32_t strip_left_;
  std::string held_;  // bytes that are no character yet
};

}  // namespace satchel::llm
