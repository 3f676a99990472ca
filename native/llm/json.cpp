#include "json.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "errors.h"
#include "reals.h"
#include "text.h"

namespace satchel::llm {

namespace {

constexpr int kDeepest = 64;

class Parser {
 public:
  Parser(std::string_view text, const std::string& section) : text_(text), section_(section) {}

  Json whole() {
    if (!is_utf8(text_)) fail("it is not UTF-8");
    Json value = any(0);
    skip_space();
    if (at_ != text_.size()) fail("something follows the document");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw FormatError(section_, at_, "the " + section_ + " is not JSON: " + why);
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  char peek() {
    skip_space();
    if (at_ == text_.size()) fail("it ends too early");
    return text_[at_];
  }

  bool takes(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  Json any(int depth) {
    if (depth > kDeepest) fail("it is too deep");
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return list(depth);
      case '"':
        return Json(string());
      case 't':
        return word("true", Json(true));
      case 'f':
        return word("false", Json(false));
      case 'n':
        return word("null", Json());
      default:
        return number();
    }
  }

  Json word(std::string_view name, Json value) {
    if (text_.substr(at_, name.size()) != name) fail("an unknown word");
    at_ += name.size();
    return value;
  }

  Json object(int depth) {
    JsonObject members;
    ++at_;
    if (takes('}')) return Json(std::move(members));
    do {
      if (peek() != '"') fail("a name is missing");
      std::string name = string();
      if (!takes(':')) fail("a colon is missing");
      members.emplace_back(std::move(name), any(depth + 1));
    } while (takes(','));
    if (!takes('}')) fail("an object does not end");
    return Json(std::move(members));
  }

  Json list(int depth) {
    JsonList items;
    ++at_;
    if (takes(']')) return Json(std::move(items));
    do {
      items.push_back(any(depth + 1));
    } while (takes(','));
    if (!takes(']')) fail("a list does not end");
    return Json(std::move(items));
  }

  uint32_t hex() {
    uint32_t code = 0;
    if (text_.size() - at_ < 4) fail("an escape is cut off");
    const char* first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, first + 4, code, 16);
    if (error != std::errc() || end != first + 4) fail("an escape is not a number");
    at_ += 4;
    return code;
  }

  std::string string() {
    std::string value;
    ++at_;
    while (true) {
      if (at_ == text_.size()) fail("a text does not end");
      const char c = text_[at_++];
      if (c == '"') return value;
      if (static_cast<uint8_t>(c) < 0x20) fail("a control character in a text");
      if (c != '\\') {
        value.push_back(c);
        continue;
      }
      if (at_ == text_.size()) fail("a text does not end");
      const char escaped = text_[at_++];
      constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
      if (const size_t which = kFrom.find(escaped); which != std::string_view::npos) {
        value.push_back(kTo[which]);
      } else if (escaped == 'u') {
        uint32_t code = hex();
        if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
          at_ += 2;
          const uint32_t low = hex();
          if (low < 0xdc00 || low > 0xdfff) fail("half a character");
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        if (code >= 0xd800 && code <= 0xdfff) fail("half a character");
        append_character(value, code);
      } else {
        fail("an unknown escape");
      }
    }
  }

  Json number() {
    const size_t first = at_;
    while (at_ < text_.size() &&
           std::string_view("+-0123456789.eE").find(text_[at_]) != std::string_view::npos)
      ++at_;
    const std::string digits(text_.substr(first, at_ - first));
    if (digits.empty() || digits.size() > 400) fail("a number is missing");
    int64_t whole = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, whole);
    if (error == std::errc() && stop == end) return Json(whole);
    char* real_end = nullptr;
    const double real = std::strtod(digits.c_str(), &real_end);
    if (real_end != digits.c_str() + digits.size() || !std::isfinite(real)) fail("no number");
    return Json(real);
  }

  std::string_view text_;
  const std::string& section_;
  size_t at_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text, const std::string& section) {
  return Parser(text, section).whole();
}

double Json::number(double otherwise) const {
  if (const int64_t* n = whole()) return static_cast<double>(*n);
  if (const double* n = real()) return *n;
  return otherwise;
}

const Json& Json::operator[](std::string_view name) const {
  static const Json none;
  if (const JsonObject* members = object()) {
    // The last one counts, as in Python.
    for (auto member = members->rbegin(); member != members->rend(); ++member) {
      if (member->first == name) return member->second;
    }
  }
  return none;
}

void append_quoted(std::string& to, std::string_view text) {
  to.push_back('"');
  for (const char c : text) {
    constexpr std::string_view kFrom = "\"\\\b\f\n\r\t", kTo = "\"\\bfnrt";
    if (const size_t which = kFrom.find(c); which != std::string_view::npos) {
      to.push_back('\\');
      to.push_back(kTo[which]);
    } else if (static_cast<uint8_t>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      to.append(escape);
    } else {
      to.push_back(c);
    }
  }
  to.push_back('"');
}

std::string Json::dump() const {
  std::string text;
  dump_to(text);
  return text;
}

void Json::dump_to(std::string& to) const {
  if (is_null()) {
    to.append("null");
  } else if (const bool* b = boolean()) {
    to.append(*b ? "true" : "false");
  } else if (const int64_t* n = whole()) {
    to.append(std::to_string(*n));
  } else if (const double* d = real()) {
    to.append(real_repr(*d));
  } else if (const std::string* s = text()) {
    append_quoted(to, *s);
  } else if (const JsonList* items = list()) {
    to.push_back('[');
    for (size_t i = 0; i < items->size(); ++i) {
      if (i > 0) to.append(", ");
      (*items)[i].dump_to(to);
    }
    to.push_back(']');
  } else {
    to.push_back('{');
    bool first = true;
    for (const auto& [name, value] : *object()) {
      if (!first) to.append(", ");
      first = false;
      append_quoted(to, name);
      to.append(": ");
      value.dump_to(to);
    }
    to.push_back('}');
  }
}

}  // namespace satchel::llm
