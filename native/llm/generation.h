// The generation loop: tokens in, text out as it comes, and why it ended.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lookahead.h"
#include "sampler.h"
#include "session.h"
#include "text_stream.h"

namespace satchel::llm {

enum class StopReason { none, end_token, stop_string, max_new_tokens, context_full };
const char* stop_reason_name(StopReason reason);

struct GenerationOptions {
  SamplingOptions sampling;
  std::optional<uint64_t> seed;  // none draws one
  int64_t max_new_tokens = 0;    // 0: where the answer or the context ends
  std::vector<std::string> stop;
  bool slides = false;  // when the context is full: forget the oldest half and go on
  size_t keep = 1;      // so many of the first tokens are never forgotten
  std::optional<LookaheadMode> lookahead;  // none: as the program says, else automatic
};

struct GenerationStats {
  size_t prompt_tokens = 0, reused_tokens = 0, new_tokens = 0;
  double prefill_s = 0, decode_s = 0, ttft_s = 0;
  int slides = 0;

  double prefill_tok_s() const {
    const auto read = static_cast<double>(prompt_tokens - reused_tokens);
    return prefill_s > 0 ? read / prefill_s : 0;
  }
  // The first token comes from the prefill, so it is not counted.
  double decode_tok_s() const {
    return decode_s > 0 && new_tokens > 1 ? static_cast<double>(new_tokens - 1) / decode_s : 0;
  }
};

class Generation {
 public:
  // Goes on from what the session's cache has in common with the prompt.
  Generation(Session& session, Tokens prompt, GenerationOptions options);

  // Makes one more token, and appends the text that is certain now; false when
  // the text has ended.
  bool next(std::string& text);

  StopReason stop_reason() const { return reason_; }
  const GenerationStats& stats() const { return stats_; }
  const Tokens& tokens() const { return made_; }
  const LookaheadStats& lookahead() const { return lookahead_.stats(); }

 private:
  using Clock = std::chrono::steady_clock;

  void begin();
  // Fills `pending_` with the tokens that follow the last one: one, or more that were guessed.
  void decode();
  // The same by tokens that are chosen where the logits are; false where that cannot be done.
  bool decode_there(size_t limit);
  uint32_t choose(std::span<float> logits, std::span<const uint32_t> history);
  void take(uint32_t token, std::string& text);
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - started_).count(); }

  Session& session_;
  Tokens prompt_, made_;
  GenerationOptions options_;
  Sampler sampler_;
  Lookahead lookahead_;
  std::deque<uint32_t> pending_;  // all but the last of them are in the cache
  TextStream stream_;
  GenerationStats stats_;
  StopReason reason_ = StopReason::none;
  Clock::time_point started_;
  std::span<float> logits_;
  size_t answer_from_ = 0;
  bool shows_ = false;  // whether the prompt has images
  bool chooses_there_ = false;
  size_t together_ = 1;  // tokens that are chosen there at once
  bool begun_ = false;
};

}  // namespace satchel::llm
