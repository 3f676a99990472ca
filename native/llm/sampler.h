// Chooses the next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "random.h"

namespace satchel::llm {

// In this order: penalties, bias, temperature, top-k, top-p, min-p.
struct SamplingOptions {
  double temperature = 0;  // 0 takes the most likely token, always
  uint32_t top_k = 0;      // 0 is off
  double top_p = 1, min_p = 0;
  double repetition_penalty = 1;
  double frequency_penalty = 0, presence_penalty = 0;
  std::vector<std::pair<uint32_t, float>> bias;  // of tokens' logits

  bool greedy() const { return temperature == 0; }
  // Throws ConfigError if a value cannot be.
  void check() const;
};

class Sampler {
 public:
  // `seed` has words of 32 bits, the lowest first.
  Sampler(SamplingOptions options, std::span<const uint32_t> seed);

  const SamplingOptions& options() const { return options_; }
  // Changes the logits by what the text has had: `history` is all of it, of
  // which the answer begins at `answer_from`.
  void penalize(std::span<float> logits, std::span<const uint32_t> history, size_t answer_from);
  // A logit of minus infinity rules its token out; NaN or infinity is an
  // ExecutionError.
  uint32_t choose(std::span<const float> logits);
  // The next random number in [0, 1), for those who choose elsewhere.
  double random() { return random_.next(); }
  // The next ones, which stay the next ones until they are spent; a greedy sampler has no use for
  // them, and spends none.
  std::vector<float> random_numbers(size_t count) const;
  void spend_numbers(size_t count);
  // The probability of every token, as choose() draws them.
  std::vector<double> distribution(std::span<const float> logits);

 private:
  // Leaves in ids_ and weights_ what may be drawn; the best one's weight is 1.
  void find_candidates(std::span<const float> logits, size_t best);
  float kth_largest(std::span<const float> logits, size_t k);
  void keep_nucleus();
  template <typename Keep>
  void keep_if(const Keep& keep);

  SamplingOptions options_;
  Random random_;
  std::vector<uint32_t> ids_, seen_, order_;
  std::vector<double> weights_, chosen_;
  std::vector<float> values_;
};

}  // namespace satchel::llm
