#include "texts.h"

#include <algorithm>
#include <utility>

#include "../text.h"
#include "../unicode.h"

namespace satchel::llm::jinja {

namespace {

template <typename Change>
std::string each_ascii(std::string_view text, const Change& change) {
  std::string result(text);
  for (size_t i = 0; i < result.size(); ++i) result[i] = change(result, i);
  return result;
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

// Only letters of ASCII have cases here; others are refused rather than wrong.
std::string cased(std::string_view text, bool up) {
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.code >= 128 && category(c.code) <= 2) fail("upper and lower are for ASCII letters here");
    at += c.length;
  }
  return each_ascii(text,
                    [&](const std::string& t, size_t i) { return up ? upper(t[i]) : lower(t[i]); });
}

std::string capitalized(std::string_view text) {
  std::string result = cased(text, false);
  if (!result.empty()) result[0] = upper(result[0]);
  return result;
}

std::string titled(std::string_view text) {
  std::string result = cased(text, false);
  bool inside = false;
  for (char& c : result) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter && !inside) c = upper(c);
    inside = letter;
  }
  return result;
}

std::string replaced(const std::string& text, const std::string& old, const std::string& by,
                     int64_t most, Budget& budget) {
  std::string result;
  size_t at = 0;
  if (old.empty()) {
    // Between all characters, as Python does.
    for (const std::string_view c : characters_of(text)) {
      if (most-- != 0) result += by;
      result += c;
      budget.keep(by.size());
    }
    return most != 0 ? result + by : result;
  }
  while (most != 0) {
    const size_t found = text.find(old, at);
    if (found == std::string::npos) break;
    result.append(text, at, found - at).append(by);
    budget.keep(by.size() + found - at);
    at = found + old.size();
    --most;
  }
  return result.append(text, at);
}

Value split(const std::string& text, const Value& by, int64_t most, bool from_right) {
  List parts;
  if (!by.is_defined() || by.kind == Kind::none) {
    if (from_right && most >= 0) fail("rsplit() at spaces with a limit is not done here");
    std::string word;
    size_t at = 0;
    while (at < text.size()) {
      const Character c = character_at(text, at);
      if (is_space(c.code)) {
        if (!word.empty()) parts.push_back(Value::text(std::exchange(word, {})));
      } else {
        if (word.empty() && most >= 0 && static_cast<int64_t>(parts.size()) == most) {
          parts.push_back(
              Value::text(stripped(std::string_view(text).substr(at), nullptr, false, true)));
          return Value::of(std::move(parts));
        }
        word.append(text, at, c.length);
      }
      at += c.length;
    }
    if (!word.empty()) parts.push_back(Value::text(word));
    return Value::of(std::move(parts));
  }
  const std::string& mark = text_of(by, "the separator");
  if (mark.empty()) fail("the separator is empty");
  std::string_view rest = text;
  while (most != 0) {
    const size_t found = from_right ? rest.rfind(mark) : rest.find(mark);
    if (found == std::string_view::npos) break;
    if (from_right) {
      parts.push_back(Value::text(std::string(rest.substr(found + mark.size()))));
      rest = rest.substr(0, found);
    } else {
      parts.push_back(Value::text(std::string(rest.substr(0, found))));
      rest = rest.substr(found + mark.size());
    }
    --most;
  }
  parts.push_back(Value::text(std::string(rest)));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return Value::of(std::move(parts));
}

bool begins_or_ends(const std::string& text, const Value& with, bool begins) {
  if (with.kind == Kind::tuple) {
    return std::any_of(with.list->begin(), with.list->end(),
                       [&](const Value& one) { return begins_or_ends(text, one, begins); });
  }
  const std::string& part = text_of(with, "what a text begins or ends with");
  return begins ? text.starts_with(part) : text.ends_with(part);
}

Value lines_of(const std::string& text) {
  List lines;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find_first_of("\n\r", at);
    lines.push_back(Value::text(text.substr(at, end - at)));
    if (end == std::string::npos) break;
    at = end + (text.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return Value::of(std::move(lines));
}

std::string joined(const List& items, const std::string& mark, bool texts_only, Budget& budget) {
  std::string result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (texts_only) text_of(items[i], "what is joined");
    if (i > 0) result += mark;
    const std::string part = items[i].str();
    budget.keep(part.size() + mark.size());
    result += part;
  }
  return result;
}

Value counted(std::string_view text, size_t found) {
  if (found == std::string_view::npos) return Value::integer(-1);
  return Value::integer(static_cast<int64_t>(length_of(text.substr(0, found))));
}

std::string indented(const std::string& text, const Arguments& given, Budget& budget) {
  const Value width = given.get(0, "width"), first = given.get(1, "first");
  std::string by(4, ' ');
  if (width.is_text()) by = *width.string;
  if (width.is_whole()) {
    if (width.whole < 0 || width.whole > 1000) fail("an indentation is too wide");
    by.assign(static_cast<size_t>(width.whole), ' ');
  }
  const bool blank = given.get(2, "blank").truthy();
  std::string result = first.truthy() ? by : "";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (at > 0 && (blank || end > at)) result += by;
    result.append(text, at, end - at);
    budget.keep(by.size());
    if (end < text.size()) result += '\n';
    at = end + 1;
  }
  return result;
}

std::string stripped(std::string_view text, const std::string* characters, bool left, bool right) {
  const auto drops = [&](size_t at) {
    const Character c = character_at(text, at);
    if (characters == nullptr) return is_space(c.code) || (c.code >= 0x1c && c.code <= 0x1f);
    return characters->find(text.substr(at, c.length)) != std::string::npos;
  };
  while (left && !text.empty() && drops(0)) text.remove_prefix(character_at(text, 0).length);
  while (right && !text.empty() && drops(before(text, text.size())))
    text = text.substr(0, before(text, text.size()));
  return std::string(text);
}

Value call_text(const std::string& text, const std::string& name, const Arguments& given,
                Budget& budget) {
  const Value first = given.get(0, "");
  const auto strip = [&](bool left, bool right) {
    const bool all = !first.is_defined() || first.kind == Kind::none;
    return Value::text(
        stripped(text, all ? nullptr : &text_of(first, "what is stripped"), left, right));
  };
  const auto most = [&](size_t place, const char* key) {
    const Value given_most = given.get(place, key);
    return given_most.is_defined() ? whole_of(given_most, "a limit") : int64_t{-1};
  };
  if (name == "strip") return strip(true, true);
  if (name == "lstrip") return strip(true, false);
  if (name == "rstrip") return strip(false, true);
  if (name == "upper" || name == "lower") return Value::text(cased(text, name == "upper"));
  if (name == "capitalize") return Value::text(capitalized(text));
  if (name == "title") return Value::text(titled(text));
  if (name == "split" || name == "rsplit")
    return split(text, given.get(0, "sep"), most(1, "maxsplit"), name == "rsplit");
  if (name == "splitlines") return lines_of(text);
  if (name == "startswith" || name == "endswith")
    return Value::boolean(begins_or_ends(text, first, name == "startswith"));
  if (name == "join") return Value::text(joined(items_of(first), text, true, budget));
  if (name == "isdigit" || name == "isspace") {
    const bool digits = name == "isdigit";
    bool all = !text.empty();
    for (size_t at = 0; at < text.size(); at += character_at(text, at).length) {
      const uint32_t code = character_at(text, at).code;
      all = all && (digits ? category(code) == 8 : is_space(code));
    }
    return Value::boolean(all);
  }
  const std::string& part = text_of(first, "what is looked for");
  if (name == "replace")
    return Value::text(
        replaced(text, part, text_of(given.get(1, ""), "a text"), most(2, "count"), budget));
  if (name == "find") return counted(text, text.find(part));
  if (name == "rfind") return counted(text, text.rfind(part));
  if (name == "removeprefix")
    return Value::text(text.starts_with(part) ? text.substr(part.size()) : text);
  if (name == "removesuffix")
    return Value::text(text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text);
  if (name == "partition" || name == "rpartition") {
    if (part.empty()) fail("the separator is empty");
    const bool forward = name == "partition";
    const size_t found = forward ? text.find(part) : text.rfind(part);
    List three;
    if (found == std::string::npos) {
      three = {Value::text(forward ? text : ""), Value::text(""), Value::text(forward ? "" : text)};
    } else {
      three = {Value::text(text.substr(0, found)), first,
               Value::text(text.substr(found + part.size()))};
    }
    return Value::of(std::move(three), Kind::tuple);
  }
  // count
  if (part.empty()) return Value::integer(static_cast<int64_t>(length_of(text)) + 1);
  int64_t times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++times;
  return Value::integer(times);
}

}  // namespace satchel::llm::jinja
