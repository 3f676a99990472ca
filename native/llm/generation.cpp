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
  if (options.slides && shows(prompt))
    throw ConfigError("a prompt with images cannot slide", "Leave --on-context-full out.");
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

LookaheadMode mode_of(Session& session, const GenerationOptions& options) {
  const bool stored = session.model().metadata()["lookahead"].object() != nullptr;
  return options.lookahead.value_or(stored ? LookaheadMode::on : LookaheadMode::automatic);
}

// A chip that chooses tokens itself does so, unless guesses are asked for.
bool chooses_there(Session& session, const GenerationOptions& options) {
  return session.model().engine().chooses_tokens() &&
         mode_of(session, options) != LookaheadMode::on;
}

// As the options or the program say, as far as it can be done; else one that knows why not.
Lookahead lookahead_for(Session& session, const GenerationOptions& options) {
  const LookaheadMode mode = mode_of(session, options);
  Lookahead none;
  if (mode == LookaheadMode::off) return none;
  if (chooses_there(session, options)) {
    none.stats().off_because = "the chip chooses the tokens itself, several at a time";
    return none;
  }
  if (!options.sampling.greedy()) {
    none.stats().off_because = "only greedy text can be guessed without loss, and this is sampled";
    return none;
  }
  if (session.most_looked_at() > 1) return Lookahead(mode, session.costs());
  const std::string other_bits = session.model().engine().other_bits_in_blocks();
  none.stats().off_because =
      other_bits.empty() ? session.model().path() + " takes one token at a time" : other_bits;
  if (mode == LookaheadMode::on) {
    throw ConfigError(
        "there is no lookahead: " + none.stats().off_because,
        std::string("Export it with --mode ") + (other_bits.empty() ? "hybrid." : "lookahead."));
  }
  return none;
}

constexpr size_t kMostTogether = 32;  // tokens that are chosen elsewhere at once
constexpr double kTogether = 0.03;    // seconds that a text may wait for its next piece

// How the options' tokens are chosen, of a text with its last token.
TokenRule rule_of(const SamplingOptions& options, std::span<const uint32_t> text, uint32_t last,
                  size_t answer_from) {
  TokenRule rule;
  rule.temperature = static_cast<float>(options.temperature);
  rule.top_k = options.top_k;
  rule.top_p = static_cast<float>(options.top_p);
  rule.min_p = static_cast<float>(options.min_p);
  rule.repetition_penalty = static_cast<float>(options.repetition_penalty);
  rule.frequency_penalty = static_cast<float>(options.frequency_penalty);
  rule.presence_penalty = static_cast<float>(options.presence_penalty);
  for (const auto& [token, bias] : options.bias)
    rule.bias.emplace_back(static_cast<int32_t>(token), bias);
  if (!rule.has_penalties()) return rule;
  rule.text.assign(text.begin(), text.end());
  rule.text.push_back(static_cast<int32_t>(last));
  rule.answer_from = static_cast<uint32_t>(answer_from);
  return rule;
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
      stream_(session.model().tokenizer(), options_.stop, words_of(prompt_)),
      answer_from_(prompt_.size()),
      shows_(shows(prompt_)) {
  // Guesses are made of the text's tokens, and images have none.
  if (!shows_) lookahead_ = lookahead_for(session_, options_);
  chooses_there_ = !shows_ && chooses_there(session_, options_);
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

uint32_t Generation::choose(std::span<float> logits, std::span<const uint32_t> history) {
  if (shows_) {  // penalties are for words
    const Tokens words = words_of(history);
    sampler_.penalize(logits, words, answer_from_ - (history.size() - words.size()));
  } else {
    sampler_.penalize(logits, history, answer_from_);
  }
  return sampler_.choose(logits);
}

void Generation::decode() {
  if (session_.room() == 0) {
    const Tokens kept = session_.slide(options_.keep);
    const size_t answered = std::min(made_.size() - 1, kept.size());  // the last is not fed yet
    answer_from_ = options_.keep + kept.size() - answered;
    session_.feed(kept);
    ++stats_.slides;
  }
  const auto limit = options_.max_new_tokens > 0
                         ? static_cast<size_t>(options_.max_new_tokens) - stats_.new_tokens
                         : static_cast<size_t>(session_.model().context());
  if (chooses_there_ && decode_there(limit)) return;
  const size_t most =
      std::min({static_cast<size_t>(session_.room()), limit, session_.most_looked_at()});
  Tokens line = {made_.back()};
  const Tokens guess = lookahead_.guess(line[0], most - 1);
  line.insert(line.end(), guess.begin(), guess.end());
  LookaheadStats& stats = lookahead_.stats();
  const double before = elapsed();
  const std::span<float> logits = session_.look(line);
  const size_t vocabulary = logits.size() / line.size();
  Tokens history = session_.tokens(), chosen;
  size_t kept = 0;  // of the line
  do {
    history.push_back(line[kept]);
    chosen.push_back(choose(logits.subspan(kept * vocabulary, vocabulary), history));
    ++kept;
  } while (chosen.size() < limit && kept < line.size() && chosen.back() == line[kept]);
  session_.keep(std::span(line).first(kept));
  lookahead_.judge(guess, chosen);
  ++stats.steps;
  stats.tokens += chosen.size();
  if (guess.empty()) {
    stats.plain_s += elapsed() - before;
  } else {
    ++stats.guessing_steps;
    stats.guessed += guess.size();
    stats.accepted += kept - 1;
  }
  pending_.assign(chosen.begin(), chosen.end());
}

bool Generation::decode_there(size_t limit) {
  const size_t count = std::min({together_, static_cast<size_t>(session_.room()), limit});
  const double before = elapsed();
  const Tokens chosen = session_.chain(
      made_.back(), rule_of(sampler_.options(), session_.tokens(), made_.back(), answer_from_),
      sampler_.random_numbers(count));
  if (chosen.empty()) return chooses_there_ = false;
  sampler_.spend_numbers(chosen.size());
  const double seconds = elapsed() - before;
  const auto in_time =
      static_cast<size_t>(kTogether * static_cast<double>(chosen.size()) / seconds);
  together_ = std::max<size_t>(1, std::min({kMostTogether, 2 * together_, in_time}));
  LookaheadStats& stats = lookahead_.stats();
  stats.plain_s += seconds;
  stats.steps += static_cast<decltype(stats.steps)>(chosen.size());
  stats.tokens += static_cast<decltype(stats.tokens)>(chosen.size());
  pending_.assign(chosen.begin(), chosen.end());
  return true;
}

bool Generation::next(std::string& text) {
  if (reason_ != StopReason::none) return false;
  if (!begun_) {
    begin();
    pending_.push_back(choose(logits_, session_.tokens()));
    stats_.ttft_s = elapsed();
    lookahead_.begin(session_.tokens());
  } else {
    if (pending_.empty()) decode();
    stats_.decode_s = elapsed() - stats_.ttft_s;
  }
  const uint32_t token = pending_.front();
  pending_.pop_front();
  take(token, text);
  if (reason_ != StopReason::none) {
    // The cache holds tokens beyond this one if they were guessed.
    session_.rewind(session_.tokens().size() - pending_.size());
    text += stream_.finish();
  }
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
  } else if (pending_.empty() && session_.room() == 0 && !options_.slides) {
    reason_ = StopReason::context_full;
  }
}

}  // namespace satchel::llm
