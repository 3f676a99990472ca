// A conversation's place in the caches: which tokens are there, and feeding
// more of them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lookahead.h"
#include "model.h"
#include "rows.h"

namespace satchel::llm {

class Session {
 public:
  explicit Session(std::shared_ptr<Model> model, const std::string& adapter = "");
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Model& model() const { return *model_; }
  const std::string& adapter() const { return adapter_; }
  // Another adapter, or none; the cache is the old one's, and is emptied.
  void use_adapter(const std::string& adapter);

  const Tokens& tokens() const { return tokens_; }
  int64_t room() const { return model_->context() - static_cast<int64_t>(tokens_.size()); }

  // Forgets every token from `position` on; what lies before stays in the
  // cache.
  void rewind(size_t position);
  // How many of the first tokens are in the cache already.
  size_t common_prefix(std::span<const uint32_t> tokens) const;
  // Appends tokens to the cache; the logits after the last one, valid until the
  // next call.
  std::span<float> feed(std::span<const uint32_t> tokens);
  // The logits after each of some tokens behind the text, a row for each, without keeping them;
  // `keep` then keeps the first of them. At most `most_looked_at` at once.
  std::span<float> look(std::span<const uint32_t> tokens);
  void keep(std::span<const uint32_t> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  // The tokens behind `token`, each chosen by the rule, with one of the random numbers each, where
  // the logits are; all but the last of them are kept. None where this cannot be done.
  Tokens chain(uint32_t token, TokenRule rule, std::vector<float> random);
  size_t most_looked_at() const;
  // Takes the rows of images from here, for as long as their prompt is read; null: from nowhere.
  void show(RowSource* source) { source_ = source; }
  StepCosts& costs() { return costs_; }
  // Makes room when the context is full: drops the older half of what follows
  // the first `keep` tokens. The rest is returned, to be fed again, since
  // positions shift.
  Tokens slide(size_t keep);

 private:
  // Leaves the logits of the rows from `first_row` on.
  void run(size_t method, std::span<const uint32_t> tokens, size_t first_row, bool guesses = false);
  void require_room(size_t tokens) const;

  std::shared_ptr<Model> model_;
  std::string adapter_;
  int32_t sequence_;
  Tokens tokens_;
  std::vector<float> logits_;
  StepCosts costs_;
  size_t step_method_ = 0;
  std::optional<size_t> prefill_method_, embedded_method_;
  RowSource* source_ = nullptr;
};

}  // namespace satchel::llm
