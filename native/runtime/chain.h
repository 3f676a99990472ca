// Several runs of a language model whose tokens are chosen where the logits are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace satchel {

// How a sequence's tokens are chosen, in the order of llm/sampler.h: penalties, bias, temperature,
// top-k, top-p, min-p.
struct TokenRule {
  float temperature = 0;  // 0: the likeliest, whatever the random number
  uint32_t top_k = 0;     // 0 is off
  float top_p = 1, min_p = 0;
  float repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  std::vector<std::pair<int32_t, float>> bias;  // of tokens' logits
  // What penalties look back on, with the token that the first run takes; the answer in it begins
  // at `answer_from`.
  std::vector<int32_t> text;
  uint32_t answer_from = 0;

  bool has_penalties() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0;
  }
  bool changes_logits() const { return has_penalties() || !bias.empty(); }
  bool leaves_out() const { return temperature > 0 && (top_k > 0 || top_p < 1 || min_p > 0); }
};

// A token of each of some sequences, and how those behind it are chosen, run by run: each takes a
// random number in [0, 1) for each of them.
struct Chain {
  std::vector<int32_t> tokens, positions, sequences;
  std::vector<TokenRule> rules;
  std::vector<float> random;  // [runs][sequences]

  size_t runs() const { return tokens.empty() ? 0 : random.size() / tokens.size(); }
};

}  // namespace satchel
