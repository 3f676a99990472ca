#include "text_stream.h"

#include <algorithm>
#include <utility>

#include "errors.h"

namespace satchel::llm {

StopStrings::StopStrings(std::vector<std::string> stop) : stop_(std::move(stop)) {
  for (const std::string& one : stop_) {
    if (one.empty())
      throw ConfigError("A stop string is empty", "Give a list of texts, or none at all");
  }
}

std::string StopStrings::push(std::string text, bool last) {
  if (stopped_) return {};
  if (stop_.empty()) return text;
  held_ += text;
  // The one that is complete first, so that it does not matter how the text was
  // cut.
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& one : stop_) {
    const size_t at = held_.find(one);
    if (at == std::string::npos) continue;
    if (std::pair(at + one.size(), at) < std::pair(end, begin)) {
      begin = at, end = at + one.size();
      stopped_ = one;
    }
  }
  if (stopped_) return held_.substr(0, begin);
  const size_t cut = held_.size() - (last ? 0 : possible_beginning());
  std::string released = held_.substr(0, cut);
  held_.erase(0, cut);
  return released;
}

size_t StopStrings::possible_beginning() const {
  size_t longest = 0;
  for (const std::string& one : stop_) longest = std::max(longest, one.size() - 1);
  for (size_t length = std::min(longest, held_.size()); length > 0; --length) {
    const std::string_view end = std::string_view(held_).substr(held_.size() - length);
    for (const std::string& one : stop_) {
      if (std::string_view(one).starts_with(end)) return length;
    }
  }
  return 0;
}

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop,
                       std::span<const uint32_t> after)
    : decoder_(tokenizer, after), stops_(std::move(stop)) {}

std::string TextStream::push(uint32_t id) {
  std::string text;
  decoder_.push(id, text);
  return stops_.push(std::move(text));
}

std::string TextStream::finish() {
  std::string text;
  decoder_.finish(text);
  return stops_.push(std::move(text), true);
}

}  // namespace satchel::llm
