#include "lookahead.h"

#include <algorithm>
#include <vector>

namespace satchel::llm {

namespace {

constexpr size_t kSamples = 5, kLongestGuess = 10;
constexpr double kFreeRows = 8;   // until more is known: so many more rows double a step's time
constexpr double kMargin = 1.03;  // a step with guesses must promise so much more than a plain one

double median(const std::deque<double>& samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 != 0 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

void StepCosts::record(size_t rows, double seconds) {
  std::deque<double>& samples = samples_[rows];
  samples.push_back(seconds);
  if (samples.size() > kSamples) samples.pop_front();
}

std::optional<double> StepCosts::measured(size_t rows) const {
  const auto found = samples_.find(rows);
  if (found == samples_.end()) return std::nullopt;
  return median(found->second);
}

double StepCosts::seconds(size_t rows) const {
  if (const auto exact = measured(rows)) return *exact;
  const auto above = samples_.upper_bound(rows);
  if (above == samples_.begin()) return above == samples_.end() ? 0 : median(above->second);
  const auto below = std::prev(above);
  const double low = median(below->second), wanted = static_cast<double>(rows);
  const auto from = static_cast<double>(below->first);
  if (above == samples_.end())
    return low * (below->first == 1 ? 1 + (wanted - 1) / kFreeRows : wanted / from);
  const double share = (wanted - from) / (static_cast<double>(above->first) - from);
  return low + (median(above->second) - low) * share;
}

void Lookahead::begin(std::span<const uint32_t> text) {
  if (stats_.mode == LookaheadMode::off) return;
  for (const uint32_t token : text) append(token);
}

Lookahead::Gram Lookahead::gram_before(size_t place, size_t length) const {
  Gram gram{static_cast<uint32_t>(length)};
  std::copy_n(text_.begin() + static_cast<std::ptrdiff_t>(place - length), length,
              gram.begin() + 1);
  return gram;
}

void Lookahead::append(uint32_t token) {
  const size_t at = text_.size();
  for (size_t length = 1; length <= std::min(kLongestMatch, at); ++length)
    places_[gram_before(at, length)] = at;
  text_.push_back(token);
}

Tokens Lookahead::guess(uint32_t token, size_t most) {
  if (stats_.mode == LookaheadMode::off) return {};
  append(token);
  most = std::min(most, kLongestGuess);
  // Not known yet what would pay: then nothing is guessed.
  if (most == 0 || (stats_.mode == LookaheadMode::automatic && !costs_->measured(1))) return {};
  for (size_t length = std::min(kLongestMatch, text_.size()); length > 0; --length) {
    const auto found = places_.find(gram_before(text_.size(), length));
    if (found == places_.end()) continue;
    size_t count = std::min(most, text_.size() - found->second);
    if (stats_.mode == LookaheadMode::automatic) count = length_worth_it(length, count);
    match_ = length;
    const auto from = text_.begin() + static_cast<std::ptrdiff_t>(found->second);
    return {from, from + static_cast<std::ptrdiff_t>(count)};
  }
  return {};
}

// How much of a guess promises to make the text fastest; 0 if none does.
size_t Lookahead::length_worth_it(size_t match, size_t longest) {
  Chance& chance = chances_[match];
  double best = 0, expected = 1, power = 1;
  size_t length = 0;
  for (size_t n = 1; n <= longest; ++n) {
    power *= chance.value();
    expected += power;  // tokens that a step gives, if the first wrong guess ends it
    const double gain = expected / std::max(costs_->seconds(n + 1), 1e-9);
    if (gain > best) best = gain, length = n;
  }
  if (best * costs_->seconds(1) >= kMargin) return length;
  chance.declined();
  return 0;
}

void Lookahead::judge(std::span<const uint32_t> guess, std::span<const uint32_t> chosen) {
  for (size_t i = 0; i < std::min(guess.size(), chosen.size()); ++i) {
    chances_[match_].happened(guess[i] == chosen[i]);
    if (guess[i] != chosen[i]) break;
  }
  for (size_t i = 0; i + 1 < chosen.size(); ++i) append(chosen[i]);
}

}  // namespace satchel::llm
