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

jinja::Value text_value(const char* text) { return jinja::Value::text(text); }

jinja::Value content_of(const Message& message, bool in_parts) {
  jinja::Value text = jinja::Value::text(message.content);
  if (message.images == 0 && !in_parts) return text;
  const jinja::Dict image{{text_value("type"), text_value("image")}};
  jinja::List parts;
  for (size_t i = 0; i < message.images; ++i) parts.push_back(jinja::Value::of(image));
  parts.push_back(jinja::Value::of(jinja::Dict{{text_value("type"), text_value("text")},
                                               {text_value("text"), std::move(text)}}));
  return jinja::Value::of(std::move(parts));
}

}  // namespace

bool has_chat_template(const Json& metadata) {
  const std::string* source = metadata["tokenizer"]["chat_template"].text();
  return source != nullptr && !source->empty();
}

ChatTemplate::ChatTemplate(const Json& metadata)
    : source_(source_of(metadata)), template_(source_) {
  if (const JsonObject* special = metadata["tokenizer"]["special_tokens"].object()) {
    for (const auto& [name, token] : *special) special_[name] = jinja::Value::from(token);
  }
  takes_parts_ = !shows_texts(false) && shows_texts(true);
}

bool ChatTemplate::shows_texts(bool in_parts) const {
  constexpr const char* kProbe = "xPROBEx";
  try {
    return render({{"user", kProbe}}, {}, in_parts).find(kProbe) != std::string::npos;
  } catch (const TemplateError&) {
    return false;
  }
}

std::string ChatTemplate::render(const Messages& messages, const Variables& variables,
                                 bool in_parts) const {
  jinja::List list;
  for (const Message& message : messages) {
    list.push_back(
        jinja::Value::of(jinja::Dict{{text_value("role"), jinja::Value::text(message.role)},
                                     {text_value("content"), content_of(message, in_parts)}}));
  }
  Variables values = special_;
  values["documents"] = jinja::Value::none();
  for (const auto& [name, value] : variables) values[name] = value;
  name_thinking(values);
  values["messages"] = jinja::Value::of(std::move(list));
  values["tools"] = jinja::Value::none();
  values["add_generation_prompt"] = jinja::Value::boolean(true);
  return template_.render(std::move(values));
}

void ChatTemplate::name_thinking(Variables& values) const {
  const auto wanted = values.find("enable_thinking");
  const auto has = [&](const char* name) { return source_.find(name) != std::string::npos; };
  if (wanted == values.end() || !wanted->second.is_boolean() || has("enable_thinking")) return;
  const bool thinks = wanted->second.whole != 0;
  if (has("thinking")) values.try_emplace("thinking", jinja::Value::boolean(thinks));
  if (has("thinking_budget") && !thinks)
    values.try_emplace("thinking_budget", jinja::Value::integer(0));
}

void Conversation::add(std::string role, std::string content) {
  if (answers_) {
    messages_.push_back({"assistant", std::move(answer_)});
    answers_ = false;
  }
  answer_.clear();
  messages_.push_back({std::move(role), std::move(content)});
}

Conversation::Turn Conversation::send(std::string text, size_t images) {
  if (text.empty()) throw ConfigError("the prompt is empty", "Give a text or a message.");
  if (!template_) template_ = std::make_unique<ChatTemplate>(model_.metadata());
  ChatTemplate::Messages messages = messages_;
  if (answers_) messages.push_back({"assistant", answer_});
  messages.push_back({"user", std::move(text), images});
  // The template writes the beginning-of-text token itself.
  const std::string prompt = template_->render(messages, variables_);
  Turn turn{encode_ ? encode_(prompt) : model_.tokenizer().encode(prompt), 1};
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
  answer_ = std::move(messages_.back().content);
  messages_.pop_back();
}

void Conversation::clear() {
  messages_.clear();
  answer_.clear();
  answers_ = false;
}

// What a prompt has in common with one in which the first message after the
// system's is another.
size_t Conversation::system_length(const Tokens& prompt) const {
  if (messages_.size() < 2 || messages_[0].role != "system") return 1;
  ChatTemplate::Messages other = messages_;
  other[1] = {other[1].role, "\u2060"};
  Tokens changed;
  try {
    changed = model_.tokenizer().encode(template_->render(other, variables_));
  } catch (const TemplateError&) {
    return 1;  // a template may refuse; then only the first token is kept
  }
  const auto same = std::mismatch(prompt.begin(), prompt.end(), changed.begin(), changed.end());
  const auto length = static_cast<int64_t>(same.first - prompt.begin());
  return static_cast<size_t>(std::max<int64_t>(1, std::min(length, model_.context() / 2)));
}

}  // namespace satchel::llm
