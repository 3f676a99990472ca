#include "whisper_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../llm/errors.h"

namespace satchel::speech {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr uint32_t kFirstLatest =
    50;  // the latest timestamp that a window may begin with: 1 second
constexpr int64_t kTimestamps = 1501, kTasks = 6, kEnglishSize = 51864;

// In the order of their tokens; the last one came with large-v3.
constexpr std::string_view kLanguages =
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th "
    "ur "
    "hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa "
    "si "
    "km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln "
    "ha "
    "ba jw su yue ";

// Marks that stand for sounds and speakers, and not for words; notes are several tokens, of which
// the first is theirs alone.
constexpr std::string_view kMarks =
    "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 << >> <<< >>> -- --- -( -[ (' (\" "
    "(( "
    ")) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪ ";
constexpr std::string_view kNotes = "♩ ♪ ♫ ♬ ♭ ♮ ♯ ";

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> found;
  for (size_t at = 0, space; (space = text.find(' ', at)) != std::string_view::npos; at = space + 1)
    found.emplace_back(text.substr(at, space - at));
  return found;
}

void rule_out(std::span<float> logits, size_t first, size_t behind) {
  for (size_t i = first; i < std::min(behind, logits.size()); ++i) logits[i] = kNever;
}

}  // namespace

WhisperTokens WhisperTokens::of_vocabulary(int64_t size) {
  const int64_t languages = 99 + std::max<int64_t>(0, size - kEnglishSize - 1);
  const int64_t end = size - kTimestamps - kTasks - languages - 2;
  if ((end != 50256 && end != 50257) || languages > 100)
    throw ConfigError("Whisper has no vocabulary of " + std::to_string(size) + " tokens",
                      "It has 51864 (English), 51865, or 51866 (large-v3).");
  return {static_cast<uint32_t>(end), static_cast<uint32_t>(languages)};
}

uint32_t WhisperTokens::language(const std::string& code) const {
  if (!multilingual() && code != "en")
    throw ConfigError("this model knows English only, and not '" + code + "'",
                      "Use a multilingual one.");
  const std::vector<std::string> known = words(kLanguages);
  const auto found = std::find(known.begin(), known.begin() + languages, code);
  if (found == known.begin() + languages)
    throw ConfigError("this model does not know the language '" + code + "'",
                      "Use a code, for example en, de or fr.");
  return start() + 1 + static_cast<uint32_t>(found - known.begin());
}

std::string WhisperTokens::code(uint32_t token) const {
  return words(kLanguages)[token - start() - 1];
}

WhisperRules::WhisperRules(const WhisperTokens& tokens, const llm::Tokenizer& tokenizer)
    : tokens_(tokens) {
  const auto encode = [&](const std::string& text) { return tokenizer.encode(text, false); };
  unspoken_ = {encode(" -").at(0), encode(" '").at(0)};
  const auto add = [&](std::string_view marks, bool always) {
    for (const std::string& mark : words(marks)) {
      for (const llm::Tokens& found : {encode(mark), encode(" " + mark)}) {
        if (found.size() == 1 || (always && !found.empty())) unspoken_.push_back(found[0]);
      }
    }
  };
  add(kMarks, false);
  add(kNotes, true);
  for (const uint32_t special : {tokens.transcribe(), tokens.translate(), tokens.start(),
                                 tokens.start_of_previous(), tokens.task(2), tokens.no_speech()})
    unspoken_.push_back(special);
  blank_ = encode(" ");
  blank_.push_back(tokens.end);
}

void WhisperRules::apply(std::span<float> logits, std::span<const uint32_t> text) const {
  for (const uint32_t token : unspoken_) rule_out(logits, token, token + 1);
  if (text.empty()) {
    for (const uint32_t token : blank_) rule_out(logits, token, token + 1);
  }
  keep_pairs(logits, text);
  if (text.empty()) {
    rule_out(logits, 0, tokens_.first_timestamp());
    rule_out(logits, tokens_.first_timestamp() + kFirstLatest + 1, logits.size());
  }
  prefer_timestamps(logits);
}

// Timestamps come in pairs, but for the first and the last, and never go back.
void WhisperRules::keep_pairs(std::span<float> logits, std::span<const uint32_t> text) const {
  const uint32_t first = tokens_.first_timestamp();
  rule_out(logits, tokens_.no_timestamps(), first);
  const bool one = !text.empty() && text.back() >= first;
  const bool two = text.size() < 2 || text[text.size() - 2] >= first;
  if (one && two) {
    rule_out(logits, first, logits.size());
  } else if (one) {
    rule_out(logits, 0, tokens_.end);
  }
  const auto latest =
      std::find_if(text.rbegin(), text.rend(), [&](uint32_t t) { return t >= first; });
  // Segments have a length: only the second of a pair may be the first again.
  if (latest != text.rend()) rule_out(logits, first, one && !two ? *latest : *latest + 1);
}

// All timestamps together against the likeliest word.
void WhisperRules::prefer_timestamps(std::span<float> logits) const {
  const std::span<float> spoken = logits.first(tokens_.first_timestamp());
  const std::span<float> times = logits.subspan(tokens_.first_timestamp());
  const float word = *std::max_element(spoken.begin(), spoken.end());
  const float largest = *std::max_element(times.begin(), times.end());
  if (largest == kNever) return;
  double sum = 0;
  for (const float time : times) sum += std::exp(time - largest);
  if (largest + std::log(sum) > word) rule_out(logits, 0, spoken.size());
}

}  // namespace satchel::speech
