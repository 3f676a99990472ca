#include "session.h"

#include <algorithm>
#include <chrono>

#include "errors.h"

namespace satchel::llm {

namespace {

constexpr size_t kPage = 64;

}  // namespace

Session::Session(std::shared_ptr<Model> model, const std::string& adapter)
    : model_(std::move(model)) {
  use_adapter(adapter);
  sequence_ = model_->engine().open_sequence();
}

Session::~Session() { model_->engine().close_sequence(sequence_); }

void Session::use_adapter(const std::string& adapter) {
  step_method_ = model_->adapted("kv_forward", adapter);
  if (model_->find_method("prefill_forward"))
    prefill_method_ = model_->adapted("prefill_forward", adapter);
  embedded_method_ =
      model_->find_method(adapter.empty() ? "embedded_forward" : "embedded_forward@" + adapter);
  if (adapter != adapter_ && !tokens_.empty()) rewind(0);
  adapter_ = adapter;
}

void Session::rewind(size_t position) {
  if (position > tokens_.size()) {
    throw ExecutionError("cannot rewind to " + std::to_string(position) + ": there are " +
                         std::to_string(tokens_.size()) + " tokens");
  }
  tokens_.resize(position);
  model_->engine().truncate(sequence_, position);
}

size_t Session::common_prefix(std::span<const uint32_t> tokens) const {
  const size_t most = std::min(tokens.size(), tokens_.size());
  size_t same = 0;
  while (same < most && tokens[same] == tokens_[same]) ++same;
  return same;
}

void Session::require_room(size_t tokens) const {
  if (tokens == 0) throw ExecutionError("there are no tokens to feed");
  if (static_cast<int64_t>(tokens) > room()) {
    throw ContextFullError(std::to_string(tokens) +
                               " tokens do not fit: " + std::to_string(room()) + " of " +
                               std::to_string(model_->context()) + " are free",
                           "Shorten the prompt, or export with a larger --context.");
  }
}

size_t Session::most_looked_at() const {
  if (!prefill_method_) return 1;
  return model_->engine().most_guesses(static_cast<size_t>(model_->prefill_length()));
}

std::span<float> Session::look(std::span<const uint32_t> tokens) {
  require_room(tokens.size());
  run(tokens.size() == 1 ? step_method_ : *prefill_method_, tokens, 0, true);
  return logits_;
}

Tokens Session::chain(uint32_t token, TokenRule rule, std::vector<float> random) {
  require_room(random.size());
  Chain chain{
      {static_cast<int32_t>(token)}, {static_cast<int32_t>(tokens_.size())}, {sequence_}, {}, {}};
  chain.rules.push_back(std::move(rule));
  chain.random = std::move(random);
  const std::vector<int32_t> chosen = model_->engine().run_chain(step_method_, std::move(chain));
  if (chosen.empty()) return {};
  if (*std::min_element(chosen.begin(), chosen.end()) < 0)
    throw ExecutionError("the model gave logits that are not finite");
  const Tokens made(chosen.begin(), chosen.end());
  keep(std::span(&token, 1));
  keep(std::span(made).first(made.size() - 1));
  return made;
}

std::span<float> Session::feed(std::span<const uint32_t> tokens) {
  require_room(tokens.size());
  // Whole pages come first, and what is left in a short step: how a token is
  // computed then depends on its place in the text alone, and not on how much
  // of it a cache held already.
  size_t longest = prefill_method_ ? static_cast<size_t>(model_->prefill_length()) : 1;
  if (longest >= kPage) longest -= longest % kPage;
  while (!tokens.empty()) {
    size_t piece = std::min(tokens.size(), longest);
    if (longest >= kPage && tokens.size() >= kPage)
      piece = std::min(longest, tokens.size() - tokens.size() % kPage);
    run(piece == 1 ? step_method_ : *prefill_method_, tokens.first(piece), piece - 1);
    keep(tokens.first(piece));
    tokens = tokens.subspan(piece);
  }
  return logits_;
}

void Session::run(size_t method, std::span<const uint32_t> tokens, size_t first_row, bool guesses) {
  const auto started = std::chrono::steady_clock::now();
  TokenStep step{method, sequence_, tokens, tokens_.size(), first_row, guesses};
  std::vector<float> rows;
  if (shows(tokens)) {
    if (source_ == nullptr) throw ExecutionError("the rows of an image are not there any more");
    if (!embedded_method_ || !model_->engine().takes_embeddings())
      throw ExecutionError(model_->path() + " takes no embeddings");
    rows = embedded(*model_, tokens, *source_);
    step.method = *embedded_method_;
    step.embedded = rows;
  }
  model_->engine().run(step, logits_);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  costs_.record(tokens.size(), took.count());
}

Tokens Session::slide(size_t keep) {
  keep = std::min(keep, tokens_.size());
  const size_t tail = tokens_.size() - keep;
  size_t dropped = tail / 2 + tail % 2;
  if (dropped == tail && tail > 0) dropped = tail - 1;
  Tokens recent(tokens_.begin() + static_cast<std::ptrdiff_t>(keep + dropped), tokens_.end());
  rewind(keep);
  return recent;
}

}  // namespace satchel::llm
