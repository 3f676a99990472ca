#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "../runtime/likeliest.h"
#include "errors.h"

namespace satchel::llm {

namespace {

void require(bool good, const char* name, const char* allowed) {
  if (!good) {
    throw ConfigError(std::string("The sampling option ") + name + " cannot be",
                      std::string("It must be ") + allowed);
  }
}

void require_known(std::span<const uint32_t> tokens, size_t vocabulary) {
  for (const uint32_t token : tokens) {
    if (token >= vocabulary) {
      throw ExecutionError("Token " + std::to_string(token) +
                           " in the history is outside the vocabulary of " +
                           std::to_string(vocabulary) + ": the tokenizer does not fit the model");
    }
  }
}

size_t best_of(std::span<const float> logits) {
  if (logits.empty()) throw ExecutionError("there are no logits");
  const int64_t best = likeliest(logits);
  if (best >= 0) return static_cast<size_t>(best);
  const auto nan =
      std::find_if(logits.begin(), logits.end(), [](float x) { return std::isnan(x); });
  const bool unordered = nan != logits.end();
  const auto wrong = unordered ? nan : std::max_element(logits.begin(), logits.end());
  throw ExecutionError("The model gave the logit " +
                       std::string(unordered    ? "nan"
                                   : *wrong > 0 ? "inf"
                                                : "-inf") +
                       " for token " + std::to_string(wrong - logits.begin()) +
                       ": its weights or recipe are broken, try `satchel verify`");
}

}  // namespace

void SamplingOptions::check() const {
  require(std::isfinite(temperature) && temperature >= 0, "temperature", "0 or more");
  require(top_p > 0 && top_p <= 1, "top_p", "above 0 and at most 1");
  require(min_p >= 0 && min_p <= 1, "min_p", "from 0 to 1");
  require(std::isfinite(repetition_penalty) && repetition_penalty > 0, "repetition_penalty",
          "above 0");
  require(std::abs(frequency_penalty) <= 2, "frequency_penalty", "from -2 to 2");
  require(std::abs(presence_penalty) <= 2, "presence_penalty", "from -2 to 2");
  for (const auto& [token, bias] : bias) require(std::abs(bias) <= 100, "logit_bias", "within 100");
}

Sampler::Sampler(SamplingOptions options, std::span<const uint32_t> seed)
    : options_(std::move(options)), random_(seed) {
  options_.check();
}

void Sampler::penalize(std::span<float> logits, std::span<const uint32_t> history,
                       size_t answer_from) {
  if (options_.repetition_penalty != 1 && !history.empty()) {
    require_known(history, logits.size());
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    seen_.assign(history.begin(), history.end());
    std::sort(seen_.begin(), seen_.end());
    seen_.erase(std::unique(seen_.begin(), seen_.end()), seen_.end());
    for (const uint32_t token : seen_) {
      float& logit = logits[token];
      logit = logit < 0 ? logit * penalty : logit / penalty;
    }
  }
  const bool counts = options_.frequency_penalty != 0 || options_.presence_penalty != 0;
  if (counts && answer_from < history.size()) {
    const auto answer = history.subspan(answer_from);
    require_known(answer, logits.size());
    seen_.assign(answer.begin(), answer.end());
    std::sort(seen_.begin(), seen_.end());
    for (size_t i = 0; i < seen_.size();) {
      size_t end = i;
      while (end < seen_.size() && seen_[end] == seen_[i]) ++end;
      const double times = static_cast<double>(end - i);
      logits[seen_[i]] -=
          static_cast<float>(options_.frequency_penalty * times + options_.presence_penalty);
      i = end;
    }
  }
  for (const auto& [token, bias] : options_.bias) {
    require_known({&token, 1}, logits.size());
    logits[token] += bias;
  }
}

uint32_t Sampler::choose(std::span<const float> logits) {
  const size_t best = best_of(logits);
  if (options_.greedy()) return static_cast<uint32_t>(best);
  find_candidates(logits, best);
  chosen_.resize(weights_.size());
  std::partial_sum(weights_.begin(), weights_.end(), chosen_.begin());
  const double drawn = random_.next() * chosen_.back();
  const auto at = std::upper_bound(chosen_.begin(), chosen_.end(), drawn) - chosen_.begin();
  return ids_[std::min(static_cast<size_t>(at), ids_.size() - 1)];
}

std::vector<double> Sampler::distribution(std::span<const float> logits) {
  const size_t best = best_of(logits);
  std::vector<double> result(logits.size(), 0.0);
  if (options_.greedy()) {
    result[best] = 1;
    return result;
  }
  find_candidates(logits, best);
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (size_t i = 0; i < ids_.size(); ++i) result[ids_[i]] = weights_[i] / sum;
  return result;
}

template <typename Keep>
void Sampler::keep_if(const Keep& keep) {
  size_t kept = 0;
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (!keep(i)) continue;
    ids_[kept] = ids_[i];
    weights_[kept++] = weights_[i];
  }
  ids_.resize(kept);
  weights_.resize(kept);
}

float Sampler::kth_largest(std::span<const float> logits, size_t k) {
  const auto kth = [&] {
    const auto at = values_.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(values_.begin(), at, values_.end(), std::greater<float>());
    return *at;
  };
  constexpr size_t kRows = 64;
  const size_t groups = logits.size() / kRows;
  if (groups <= k) {
    values_.assign(logits.begin(), logits.end());
    return kth();
  }
  // The k best groups have a value each that is no smaller than the k-th best group's largest:
  // what lies below that can be left out, which is nearly everything.
  values_.assign(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(groups));
  for (size_t row = 1; row < kRows; ++row) {
    const float* from = logits.data() + row * groups;
    for (size_t i = 0; i < groups; ++i) values_[i] = from[i] > values_[i] ? from[i] : values_[i];
  }
  const float least = kth();
  values_.clear();
  for (const float value : logits) {
    if (value >= least) values_.push_back(value);
  }
  return kth();
}

void Sampler::find_candidates(std::span<const float> logits, size_t best) {
  ids_.clear();
  weights_.clear();
  float least = -INFINITY;
  if (options_.top_k > 0 && options_.top_k < logits.size()) {
    least = kth_largest(logits, options_.top_k);  // all that equal it stay
  }
  const auto top = static_cast<double>(logits[best]);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < least) continue;
    ids_.push_back(static_cast<uint32_t>(i));
    weights_.push_back(std::exp((static_cast<double>(logits[i]) - top) / options_.temperature));
  }
  if (options_.top_p < 1) keep_nucleus();
  if (options_.min_p > 0) keep_if([&](size_t i) { return weights_[i] >= options_.min_p; });
}

// The fewest tokens whose share reaches top_p. Of equal ones at the edge those
// with higher ids stay, as in Hugging Face's.
void Sampler::keep_nucleus() {
  const double target = options_.top_p * std::accumulate(weights_.begin(), weights_.end(), 0.0);
  order_.resize(weights_.size());
  std::iota(order_.begin(), order_.end(), 0u);
  const auto before = [&](uint32_t a, uint32_t b) {
    return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a > b;
  };
  // Seldom more than a few are needed, so that they are not all sorted.
  double reached = 0;
  size_t sorted = 0, keep = 0, block = 256;
  while (keep < order_.size() && reached < target) {
    if (keep == sorted) {
      sorted = std::min(order_.size(), sorted + block);
      block *= 8;
      const auto from = order_.begin() + static_cast<std::ptrdiff_t>(keep);
      std::partial_sort(from, order_.begin() + static_cast<std::ptrdiff_t>(sorted), order_.end(),
                        before);
    }
    reached += weights_[order_[keep++]];
  }
  chosen_.assign(weights_.size(), 0.0);
  for (size_t i = 0; i < keep; ++i) chosen_[order_[i]] = 1;
  keep_if([&](size_t i) { return chosen_[i] != 0; });
}

std::vector<float> Sampler::random_numbers(size_t count) const {
  std::vector<float> numbers(count);
  if (options_.greedy()) return numbers;
  Random ahead = random_;
  for (float& number : numbers) number = static_cast<float>(ahead.next());
  return numbers;
}

void Sampler::spend_numbers(size_t count) {
  if (options_.greedy()) return;
  for (size_t i = 0; i < count; ++i) random_.next();
}

}  // namespace satchel::llm
