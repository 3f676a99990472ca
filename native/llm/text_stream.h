// Text from tokens as they come: never half a character, never part of a stop
// string.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tokenizer.h"

namespace satchel::llm {

// Holds text back that could be the beginning of a stop string.
class StopStrings {
 public:
  // Throws ConfigError if one is empty.
  explicit StopStrings(std::vector<std::string> stop);

  // Takes text and gives what is certain now; with `last`, all that is left.
  std::string push(std::string text, bool last = false);
  // The stop string that has come; what follows it is dropped.
  const std::optional<std::string>& stopped() const { return stopped_; }

 private:
  size_t possible_beginning() const;

  std::vector<std::string> stop_;
  std::string held_;
  std::optional<std::string> stopped_;
};

class TextStream {
 public:
  // With `after`, the tokens that went before, the text goes on from theirs.
  // Throws ConfigError if a stop string is empty.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop,
             std::span<const uint32_t> after = {});

  // Takes one token and gives the text that is certain now; often it is empty.
  std::string push(uint32_t id);
  // The rest of the text. Bytes that never became a character come out as
  // U+FFFD.
  std::string finish();
  const std::optional<std::string>& stopped() const { return stops_.stopped(); }

 private:
  TokenDecoder decoder_;
  StopStrings stops_;
};

}  // namespace satchel::llm
