// Conversations: what was said, as the prompt that the model's chat template
// makes of it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model.h"
#include "template/template.h"

namespace satchel::llm {

bool has_chat_template(const Json& metadata);

// What someone says: a text, maybe with images before it.
struct Message {
  std::string role, content;
  size_t images = 0;  // that the template writes the marks of
};

// A model's chat template, with the special tokens that it may name.
class ChatTemplate {
 public:
  // Throws TemplateError if the model has none, or has one that is not done
  // here.
  explicit ChatTemplate(const Json& metadata);

  using Messages = std::vector<Message>;
  using Variables = std::map<std::string, jinja::Value>;

  // The prompt up to where the model's answer begins.
  std::string render(const Messages& messages, const Variables& variables = {}) const {
    return render(messages, variables, takes_parts_);
  }

 private:
  std::string render(const Messages& messages, const Variables& variables, bool in_parts) const;
  bool shows_texts(bool in_parts) const;
  // What Granite's and Seed-OSS's templates have for what most call enable_thinking.
  void name_thinking(Variables& values) const;

  std::string source_;
  jinja::Template template_;
  Variables special_;
  // Whether a message's content must be a list of parts, as for many vision-language models: such a
  // template goes over the parts, and would drop a plain text without a word.
  bool takes_parts_;
};

class Conversation {
 public:
  explicit Conversation(const Model& model, ChatTemplate::Variables variables = {})
      : model_(model), variables_(std::move(variables)) {}

  using Encode = std::function<Tokens(const std::string& text)>;
  // Makes the tokens of prompts in place of the model's tokenizer, from here on.
  void encode_with(Encode encode) { encode_ = std::move(encode); }

  struct Turn {
    Tokens prompt;
    size_t keep;  // so many of the first tokens are the system message
  };

  void add(std::string role, std::string content);
  // What the user says, and the prompt for an answer to it. If that fails,
  // nothing was said.
  Turn send(std::string text, size_t images = 0);
  // Takes back what was said last, when it could not be answered.
  void retract();
  // A piece of the answer, which joins the conversation when the next thing is
  // said.
  void hear(const std::string& piece) { answer_ += piece; }
  void clear();
  const ChatTemplate::Messages& messages() const { return messages_; }

 private:
  size_t system_length(const Tokens& prompt) const;

  const Model& model_;
  ChatTemplate::Variables variables_;
  Encode encode_;
  std::unique_ptr<ChatTemplate> template_;  // when it is first needed
  ChatTemplate::Messages messages_;
  std::string answer_;
  bool answers_ = false;   // the model has been asked
  bool answered_ = false;  // it had been asked before that, too
};

}  // namespace satchel::llm
