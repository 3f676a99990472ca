// Whisper's special tokens, and which tokens may follow a text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../llm/tokenizer.h"

namespace satchel::speech {

constexpr double kTimestampSeconds = 0.02;  // between two of their tokens

// The special tokens follow the words of a vocabulary in one order.
struct WhisperTokens {
  uint32_t end = 0;  // of a text; the words are those before it
  uint32_t languages = 0;

  // Throws ConfigError if Whisper has no vocabulary of that size.
  static WhisperTokens of_vocabulary(int64_t size);

  bool multilingual() const { return end > 50256; }
  uint32_t start() const { return end + 1; }
  uint32_t translate() const { return task(0); }
  uint32_t transcribe() const { return task(1); }
  uint32_t start_of_previous() const { return task(3); }
  uint32_t no_speech() const { return task(4); }
  uint32_t no_timestamps() const { return task(5); }
  uint32_t first_timestamp() const { return task(6); }
  uint32_t task(uint32_t number) const { return start() + 1 + languages + number; }

  // A language by its code; throws ConfigError if the model does not know it.
  uint32_t language(const std::string& code) const;
  std::string code(uint32_t token) const;
};

class WhisperRules {
 public:
  WhisperRules(const WhisperTokens& tokens, const llm::Tokenizer& tokenizer);

  // Rules out, in place, what may not follow the text: its logits become minus infinity.
  void apply(std::span<float> logits, std::span<const uint32_t> text) const;

 private:
  void keep_pairs(std::span<float> logits, std::span<const uint32_t> text) const;
  void prefer_timestamps(std::span<float> logits) const;

  WhisperTokens tokens_;
  std::vector<uint32_t> unspoken_, blank_;
};

}  // namespace satchel::speech
