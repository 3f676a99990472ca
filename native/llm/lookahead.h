// Lossless guessing: a step computes the last token together with what is thought to follow it, and
// keeps as much as the model would have chosen itself. The text is exactly the greedy one, since a
// token has the same bits alone and in a block. Guesses are what followed before, where the end of
// the text occurred earlier.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "tokenizer.h"

namespace satchel::llm {

enum class LookaheadMode { automatic, on, off };

// Seconds of a step by how many tokens it computed: medians of the latest measurements.
class StepCosts {
 public:
  void record(size_t rows, double seconds);
  std::optional<double> measured(size_t rows) const;
  // Measured, or between its neighbours; above all of them in proportion.
  double seconds(size_t rows) const;

 private:
  std::map<size_t, std::deque<double>> samples_;
};

// An estimate that follows what happens, and goes back to its first value when nothing does, so
// that what was given up is tried again.
class Chance {
 public:
  explicit Chance(double start = 0) : value_(start), start_(start) {}
  double value() const { return value_; }
  void happened(bool right) { value_ += 0.15 * ((right ? 1.0 : 0.0) - value_); }
  void declined() { value_ += 0.02 * (start_ - value_); }

 private:
  double value_, start_;
};

struct LookaheadStats {
  LookaheadMode mode = LookaheadMode::off;
  std::string off_because;
  uint64_t steps = 0, guessing_steps = 0, tokens = 0, guessed = 0, accepted = 0;
  double plain_s = 0;  // of the steps without guesses
};

class Lookahead {
 public:
  Lookahead() = default;  // guesses nothing
  Lookahead(LookaheadMode mode, const StepCosts& costs) : costs_(&costs) { stats_.mode = mode; }

  // The text so far, which guesses are made of.
  void begin(std::span<const uint32_t> text);
  // What is thought to follow `token`, with which the text goes on: at most `most` tokens, and none
  // where it does not promise to be faster.
  Tokens guess(uint32_t token, size_t most);
  // After a step with that guess: the tokens that the text went on with.
  void judge(std::span<const uint32_t> guess, std::span<const uint32_t> chosen);

  LookaheadStats& stats() { return stats_; }
  const LookaheadStats& stats() const { return stats_; }

 private:
  static constexpr size_t kLongestMatch = 3;
  using Gram = std::array<uint32_t, kLongestMatch + 1>;  // its length, and its tokens

  void append(uint32_t token);
  Gram gram_before(size_t place, size_t length) const;
  size_t length_worth_it(size_t match, size_t longest);

  const StepCosts* costs_ = nullptr;
  Tokens text_;
  std::map<Gram, size_t> places_;  // what follows an n-gram where it occurred last
  std::array<Chance, kLongestMatch + 1> chances_ = {Chance(), Chance(0.4), Chance(0.6),
                                                    Chance(0.75)};
  size_t match_ = 0;  // of the latest guess
  LookaheadStats stats_;
};

}  // namespace satchel::llm
