#include "session.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>

#include "errors.h"

namespace satchel::llm {

namespace {

constexpr size_t kPage = 64;

}  // namespace

Session::Session(std::shared_ptr<Model> model, const std::string& adapter)
    : model_(std::move(model)) {
  use_adapter(adapter);
  const std::lock_guard<std::recursive_mutex> lock(model_->instance().mutex());
  sequence_ = model_->instance().sequences().open();
}

Session::~Session() {
  const std::lock_guard<std::recursive_mutex> lock(model_->instance().mutex());
  model_->instance().sequences().close(sequence_);
}

void Session::use_adapter(const std::string& adapter) {
  step_method_ = model_->adapted("kv_forward", adapter);
  if (model_->find_method("prefill_forward"))
    prefill_method_ = model_->adapted("prefill_forward", adapter);
  if (adapter != adapter_ && !tokens_.empty()) rewind(0);
  adapter_ = adapter;
}

void Session::rewind(size_t position) {
  if (position > tokens_.size()) {
    throw ExecutionError("cannot rewind to " + std::to_string(position) + ": there are " +
                         std::to_string(tokens_.size()) + " tokens");
  }
  tokens_.resize(position);
  const std::lock_guard<std::recursive_mutex> lock(model_->instance().mutex());
  model_->instance().sequences().truncate(sequence_, static_cast<int64_t>(position));
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
  // Kernels may sum blocks of 64 rows and more in another order than single rows, and a token of
  // 16-bit activations is two rows: beyond this a text would no longer be exactly the greedy one.
  constexpr int64_t kMostRows = 31;
  return prefill_method_ ? static_cast<size_t>(std::min(kMostRows, model_->prefill_length())) : 1;
}

std::span<float> Session::look(std::span<const uint32_t> tokens) {
  require_room(tokens.size());
  run(tokens.size() == 1 ? step_method_ : *prefill_method_, tokens, 0);
  return logits_;
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

void Session::run(size_t method_number, std::span<const uint32_t> tokens, size_t first_row) {
  const auto started = std::chrono::steady_clock::now();
  Instance& instance = model_->instance();
  const Method& method = model_->program().methods()[method_number];
  const auto count = static_cast<int64_t>(tokens.size());
  std::vector<int32_t> ids(tokens.begin(), tokens.end());
  std::vector<int32_t> positions(tokens.size()), parents(tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(tokens_.size()));
  std::iota(parents.begin(), parents.end(), -1);
  const std::vector<int32_t> sequences(tokens.size(), sequence_);
  std::vector<int32_t> rows(tokens.size() - first_row);
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(first_row));
  const auto row_count = static_cast<int64_t>(rows.size());
  std::vector<ArrayView> inputs;
  for (const uint32_t id : method.inputs) {
    const std::string& name = method.values[id].name;
    if (name == "rows") {
      inputs.push_back({DType::i32, {row_count}, rows.data()});
      continue;
    }
    const std::vector<int32_t>* column = name == "tokens"     ? &ids
                                         : name == "sequence" ? &sequences
                                         : name == "position" ? &positions
                                         : name == "parents"  ? &parents
                                                              : nullptr;
    if (column == nullptr) {
      throw ExecutionError("the method " + method.name + " takes the input '" + name +
                           "', which is not known here");
    }
    inputs.push_back({DType::i32, {count}, column->data()});
  }
  const std::lock_guard<std::recursive_mutex> lock(instance.mutex());
  const std::vector<ArrayView> outputs = instance.run(method_number, inputs);
  if (outputs.size() != 1 || outputs[0].dtype != DType::f32 || outputs[0].shape.size() != 2 ||
      outputs[0].shape[0] != row_count)
    throw ExecutionError("the method " + method.name + " does not give the logits of its rows");
  logits_.resize(rows.size() * static_cast<size_t>(outputs[0].shape[1]));
  instance.cpu().copy(static_cast<const uint8_t*>(outputs[0].data), logits_.size() * sizeof(float),
                      reinterpret_cast<uint8_t*>(logits_.data()));
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
