#include "chat.h"

#include <algorithm>

#include "errors.h"

namespace satchel::llm {

namespace {

const std::string& source_of(const Json& metadata) {
  const std::string* source = metadata["tokenizer"]["chat_template"].text();
  if (source == nullptr || source->empty()) {
    throw TemplateError("The model has no chat template",
                        "It is not a chat model: give it plain text with --raw");
  }
  return *source;
}

}  // namespace

bool has_chat_template(const Json& metadata) {
  const std::string* source = metadata["tokenizer"]["chat_template"].text();
  return source != nullptr && !source->empty();
}

ChatTemplate::ChatTemplate(const Json& metadata) : template_(source_of(metadata)) {
  if (const JsonObject* special = metadata["tokenizer"]["special_tokens"].object()) {
    for (const auto& [name, token] : *special) special_[name] = jinja::Value::from(token);
  }
}

std::string ChatTemplate::render(const Messages& messages, const Variables& variables) const {
  jinja::List list;
  for (const auto& [role, content] : messages) {
    list.push_back(jinja::Value::of(
        jinja::Dict{{jinja::Value::text("role"), jinja::Value::text(role)},
                    {jinja::Value::text("content"), jinja::Value::text(content)}}));
  }
  Variables values = special_;
  values["documents"] = jinja::Value::none();
  for (const auto& [name, value] : variables) values[name] = value;
  values["messages"] = jinja::Value::of(std::move(list));
  values["tools"] = jinja::Value::none();
  values["add_generation_prompt"] = jinja::Value::boolean(true);
  return template_.render(std::move(values));
}

void Conversation::add(std::string role, std::string content) {
  if (answers_) {
    messages_.emplace_back("assistant", std::move(answer_));
    answers_ = false;
  }
  answer_.clear();
  messages_.emplace_back(std::move(role), std::move(content));
}

Conversation::Turn Conversation::send(std::string text) {
  if (text.empty()) throw ConfigError("the prompt is empty", "Give a text or a message.");
  if (!template_) template_ = std::make_unique<ChatTemplate>(model_.metadata());
  ChatTemplate::Messages messages = messages_;
  if (answers_) messages.emplace_back("assistant", answer_);
  messages.emplace_back("user", std::move(text));
  Turn turn{prompt_of(messages), 1};
  // Nothing can fail from here on.
  messages_ = std::move(messages);
  turn.keep = system_length(turn.prompt);
  answer_.clear();
  answered_ = std::exchange(answers_, true);
  return turn;
}

void Conversation::retract() {
  if (!answers_) return;
  messages_.pop_back();
  answers_ = std::exchange(answered_, false);
  if (!answers_) return;
  answer_ = std::move(messages_.back().second);
  messages_.pop_back();
}

void Conversation::clear() {
  messages_.clear();
  answer_.clear();
  answers_ = false;
}

Tokens Conversation::prompt_of(const ChatTemplate::Messages& messages) const {
  // The template writes the beginning-of-text token itself.
  return model_.tokenizer().encode(template_->render(messages, variables_));
}

// What a prompt has in common with one in which the first message after the
// system's is another.
size_t Conversation::system_length(const Tokens& prompt) const {
  if (messages_.size() < 2 || messages_[0].first != "system") return 1;
  ChatTemplate::Messages other = messages_;
  other[1].second = "\u2060";
  Tokens changed;
  try {
    changed = prompt_of(other);
  } catch (const TemplateError&) {
    return 1;  // a template may refuse; then only the first token is kept
  }
  const auto same = std::mismatch(prompt.begin(), prompt.end(), changed.begin(), changed.end());
  const auto length = static_cast<int64_t>(same.first - prompt.begin());
  return static_cast<size_t>(std::max<int64_t>(1, std::min(length, model_.context() / 2)));
}

}  // namespace satchel::llm
