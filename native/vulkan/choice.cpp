#include "choice.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "run_inputs.h"

namespace satchel::vulkan {

namespace {

constexpr uint64_t kBlock = 1024, kBlockBytes = 16;  // of shaders/sample.glsl
constexpr size_t kFewPast = 1024;                    // words
constexpr size_t kMostChosen = RunInputs::kMostRuns * Choice::kMostTokens;

uint32_t bits(float number) { return std::bit_cast<uint32_t>(number); }
size_t text_size(const TokenRule& rule) { return rule.has_penalties() ? rule.text.size() : 0; }

// How far below the likeliest a logit may lie, by min-p.
float reach_of(const TokenRule& rule) {
  return rule.min_p > 0 ? -std::log(rule.min_p) * rule.temperature : INFINITY;
}

}  // namespace

Choice::Choice(const Device& device)
    : device_(device),
      chosen_(device, kMostChosen * sizeof(int32_t), Where::device),
      shown_(device, kMostChosen * sizeof(int32_t), Where::host) {}

bool Choice::prepare(const Chain& chain) {
  const auto any = [&](auto is) { return std::any_of(chain.rules.begin(), chain.rules.end(), is); };
  const bool has_past = any([](const TokenRule& rule) { return rule.changes_logits(); }),
             leaves_out = any([](const TokenRule& rule) { return rule.leaves_out(); });
  const bool is_other = has_past != has_past_ || leaves_out != leaves_out_;
  has_past_ = has_past;
  leaves_out_ = leaves_out;
  past_words_.clear();
  if (!has_past_) return is_other;
  for (const TokenRule& rule : chain.rules) {
    past_words_.insert(past_words_.end(), rule.text.begin(),
                       rule.text.begin() + static_cast<ptrdiff_t>(text_size(rule)));
    for (const auto& [token, bias] : rule.bias)
      past_words_.insert(past_words_.end(), {static_cast<uint32_t>(token), bits(bias)});
  }
  // Texts grow: the commands stay as they are until there is no room for them.
  const size_t room = past_ ? past_->size() / sizeof(uint32_t) : kFewPast;
  past_words_.resize(std::max(room, std::bit_ceil(past_words_.size())));
  at_least(past_, past_words_.size() * sizeof(uint32_t));
  return is_other;
}

std::vector<uint32_t> Choice::words(const Chain& chain, size_t run) const {
  const size_t count = chain.tokens.size();
  std::vector<uint32_t> words{static_cast<uint32_t>(run)};
  for (size_t i = 0; i < count; ++i) {
    const float temperature = chain.rules[i].temperature;
    words.push_back(bits(chain.random[run * count + i]));
    words.push_back(bits(temperature > 0 ? 1.0f / temperature : 0.0f));
  }
  if (!has_past_ && !leaves_out_) return words;
  // As shaders/sample_rule.glsl has them.
  size_t at = 0;
  for (const TokenRule& rule : chain.rules) {
    const size_t text = at, bias = text + text_size(rule);
    at = bias + 2 * rule.bias.size();
    words.insert(words.end(),
                 {rule.top_k, bits(rule.top_p), bits(reach_of(rule)), bits(rule.repetition_penalty),
                  bits(rule.frequency_penalty), bits(rule.presence_penalty)});
    for (const size_t number :
         {text, text_size(rule), size_t{rule.answer_from}, bias, rule.bias.size()})
      words.push_back(static_cast<uint32_t>(number));
  }
  return words;
}

Place Choice::past() const {
  if (!has_past_) return {};
  return {past_->handle(), 0, past_->size()};
}

Place Choice::at_least(std::unique_ptr<Buffer>& buffer, uint64_t bytes) const {
  if (!buffer || buffer->size() < bytes)
    buffer = std::make_unique<Buffer>(device_, bytes, Where::device);
  return {buffer->handle(), 0, bytes};
}

void Choice::record(Recorder& recorder, const Place& logits, uint32_t count, const Place& words,
                    const Place& tokens) {
  const uint64_t vocabulary = logits.size / sizeof(float) / count,
                 groups = (vocabulary + kBlock - 1) / kBlock, all = groups * count;
  const View from = recorder.view(logits), how = recorder.view(words), to = recorder.view(tokens),
             blocks = recorder.view(at_least(blocks_, all * kBlockBytes)),
             list = recorder.view(chosen());
  // What a shader does not look at is anything.
  const auto of_each = [&](std::unique_ptr<Buffer>& buffer) {
    return leaves_out_ ? recorder.view(at_least(buffer, all * kBlock * sizeof(float))) : blocks;
  };
  const View past = has_past_ ? recorder.view(this->past()) : how, ordered = of_each(ordered_),
             sums = of_each(sums_);
  struct {
    uint32_t vocabulary, logits_first, choice_first, past_first, chosen_first;
  } first{static_cast<uint32_t>(vocabulary), from.first, how.first, past.first, list.first};
  struct {
    uint32_t vocabulary, logits_first, choice_first, tokens_first, chosen_first;
  } second{first.vocabulary, from.first, how.first, to.first, list.first};
  const Groups each{static_cast<uint32_t>(groups), count};
  if (has_past_ || leaves_out_) {
    recorder.dispatch(
        "sample_ordered", {},
        {written(from), written(blocks), how, past, list, written(ordered), written(sums)}, first,
        each);
  } else {
    recorder.dispatch("sample_blocks", {}, {from, written(blocks), how}, first, each);
  }
  if (leaves_out_) {
    recorder.dispatch("sample_cut", {},
                      {from, blocks, how, written(to), written(list), ordered, sums}, second,
                      {count});
  } else {
    recorder.dispatch("sample_whole", {}, {from, blocks, how, written(to), written(list)}, second,
                      {count});
  }
}

}  // namespace satchel::vulkan
