// A conversation's place in the caches: which tokens are there, and feeding
// more of them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model.h"

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
  // Makes room when the context is full: drops the older half of what follows
  // the first `keep` tokens. The rest is returned, to be fed again, since
  // positions shift.
  Tokens slide(size_t keep);

 private:
  void run(size_t method, std::span<const uint32_t> tokens);

  std::shared_ptr<Model> model_;
  std::string adapter_;
  int32_t sequence_;
  Tokens tokens_;
  std::vector<float> logits_;
  size_t step_method_ = 0;
  std::optional<size_t> prefill_method_;
};

}  // namespace satchel::llm
