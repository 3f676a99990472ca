#include "generation.h"

#include <algorithm>
#include <random>

#include "errors.h"

namespace satchel::llm {

namespace {

std::vector<uint32_t> seed_words(const std::optional<uint64_t>& seed) {
  if (!seed) {
    std::random_device device;
    return {device(), device(), device(), device()};
  }
  const auto low = static_cast<uint32_t>(*seed), high = static_cast<uint32_t>(*seed >> 32);
  return high == 0 ? std::vector<uint32_t>{low} : std::vector<uint32_t>{low, high};
}

// A prompt that fits: of one that slides, the beginning and the latest half.
Tokens fitting(Tokens prompt, int64_t context, const GenerationOptions& options) {
  if (prompt.empty()) throw ConfigError("the prompt is empty", "Give at least one character.");
  const auto most = static_cast<size_t>(context);
  if (prompt.size() <= most) return prompt;
  if (!options.slides) {
    throw ContextFullError("the prompt has " + std::to_string(prompt.size()) +
                               " tokens, and the context " + std::to_string(context),
                           "Shorten it, export with a larger --context, or use "
                           "--on-context-full slide.");
  }
  const size_t room = most - options.keep, latest = room / 2 + room % 2;
  prompt.erase(prompt.begin() + static_cast<std::ptrdiff_t>(options.keep),
               prompt.end() - static_cast<std::ptrdiff_t>(latest));
  return prompt;
}

}  // namespace

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::end_token:
      return "end_token";
    case StopReason::stop_string:
      return "stop_string";
    case StopReason::max_new_tokens:
      return "max_new_tokens";
    case StopReason::context_full:
      return "context_full";
    case StopReason::none:
      break;
  }
  return "";
}

Generation::Generation(Session& session, Tokens prompt, GenerationOptions options)
    : session_(session),
      prompt_(fitting(std::move(prompt), session.model().context(), options)),
      options_(std::move(options)),
      sampler_(options_.sampling, seed_words(options_.seed)),
      stream_(session.model().tokenizer(), options_.stop, prompt_),
      answer_from_(prompt_.size()) {
  options_.keep = std::min(options_.keep, prompt_.size());
  stats_.prompt_tokens = prompt_.size();
}

void Generation::begin() {
  started_ = Clock::now();
  begun_ = true;
  // At least the last token is fed again: its logits are needed.
  const std::span<const uint32_t> prompt(prompt_);
  session_.rewind(session_.common_prefix(prompt.first(prompt.size() - 1)));
  stats_.reused_tokens = session_.tokens().size();
  logits_ = session_.feed(prompt.subspan(session_.tokens().size()));
  stats_.prefill_s = elapsed();
}

uint32_t Generation::sample() {
  sampler_.penalize(logits_, session_.tokens(), answer_from_);
  return sampler_.choose(logits_);
}

bool Generation::next(std::string& text) {
  if (reason_ != StopReason::none) return false;
  if (!begun_) {
    begin();
    const uint32_t token = sample();
    stats_.ttft_s = elapsed();
    take(token, text);
  } else {
    if (session_.room() == 0) {
      const Tokens kept = session_.slide(options_.keep);
      const size_t answered = std::min(made_.size() - 1, kept.size());  // the last is not fed yet
      answer_from_ = options_.keep + kept.size() - answered;
      session_.feed(kept);
      ++stats_.slides;
    }
    logits_ = session_.feed(std::span(&made_.back(), 1));
    const uint32_t token = sample();
    stats_.decode_s = elapsed() - stats_.ttft_s;
    take(token, text);
  }
  if (reason_ != StopReason::none) text += stream_.finish();
  return true;
}

void Generation::take(uint32_t token, std::string& text) {
  if (session_.model().tokenizer().is_end(token)) {
    reason_ = StopReason::end_token;
    return;
  }
  made_.push_back(token);
  ++stats_.new_tokens;
  text += stream_.push(token);
  if (stream_.stopped()) {
    reason_ = StopReason::stop_string;
  } else if (static_cast<int64_t>(stats_.new_tokens) == options_.max_new_tokens) {
    reason_ = StopReason::max_new_tokens;
  } else if (session_.room() == 0 && !options_.slides) {
    reason_ = StopReason::context_full;
  }
}

}  // namespace satchel::llm
