#include "value.h"

#include <algorithm>
#include <cstdio>

#include "../errors.h"
#include "../reals.h"
#include "../text.h"
#include "../unicode.h"

namespace satchel::llm::jinja {

Value Value::undefined(std::string name) {
  Value value = made(Kind::undefined);
  if (!name.empty()) value.string = std::make_shared<const std::string>(std::move(name));
  return value;
}

Value Value::number(double real) {
  Value value = made(Kind::real);
  value.real = real;
  return value;
}

Value Value::text(std::string text) {
  Value value = made(Kind::text);
  value.string = std::make_shared<const std::string>(std::move(text));
  return value;
}

Value Value::function(std::string name) {
  Value value = made(Kind::function);
  value.string = std::make_shared<const std::string>(std::move(name));
  return value;
}

Value Value::of(List items, Kind kind) {
  Value value = made(kind);
  value.list = std::make_shared<List>(std::move(items));
  return value;
}

Value Value::of(Dict items, Kind kind) {
  Value value = made(kind);
  value.dict = std::make_shared<Dict>(std::move(items));
  return value;
}

Value Value::from(const Json& json) {
  if (const bool* b = json.boolean()) return boolean(*b);
  if (const int64_t* n = json.whole()) return integer(*n);
  if (const double* d = json.real()) return number(*d);
  if (const std::string* s = json.text()) return text(*s);
  if (const JsonList* items = json.list()) {
    List list;
    for (const Json& item : *items) list.push_back(from(item));
    return of(std::move(list));
  }
  if (const JsonObject* members = json.object()) {
    Dict dict;
    for (const auto& [name, value] : *members) dict.emplace_back(text(name), from(value));
    return of(std::move(dict));
  }
  return none();
}

bool Value::truthy() const {
  switch (kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return whole != 0;
    case Kind::real:
      return real != 0;
    case Kind::text:
      return !string->empty();
    case Kind::list:
    case Kind::tuple:
      return !list->empty();
    case Kind::dict:
      return !dict->empty();
    default:
      return true;
  }
}

const Value* Value::find(std::string_view key) const {
  if (!dict) return nullptr;
  for (const auto& [name, value] : *dict) {
    if (name.is_text() && *name.string == key) return &value;
  }
  return nullptr;
}

const char* Value::type_name() const {
  constexpr const char* kNames[] = {"undefined", "NoneType",  "bool",  "int",
                                    "float",     "str",       "list",  "tuple",
                                    "dict",      "Namespace", "Macro", "function"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Value::str() const {
  switch (kind) {
    case Kind::undefined:
      return "";
    case Kind::text:
      return *string;
    default:
      return repr();
  }
}

namespace {

// As Python quotes a text: with ' unless it has some and no ".
std::string quoted(std::string_view text) {
  const bool doubled =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char mark = doubled ? '"' : '\'';
  std::string result(1, mark);
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    char escape[16];
    if (c.code == static_cast<uint32_t>(mark) || c.code == '\\') {
      result += {'\\', static_cast<char>(c.code)};
    } else if (c.code == '\n') {
      result += "\\n";
    } else if (c.code == '\r') {
      result += "\\r";
    } else if (c.code == '\t') {
      result += "\\t";
    } else {
      const uint32_t kind = category(c.code);
      // Separators but for the space, and what has no shape (categories Zs to
      // Cn).
      const bool hidden = c.code != ' ' && kind >= 22;
      if (!hidden) {
        result.append(text.substr(at, c.length));
      } else {
        const char* form = c.code < 0x100 ? "\\x%02x" : c.code < 0x10000 ? "\\u%04x" : "\\U%08x";
        std::snprintf(escape, sizeof escape, form, static_cast<unsigned>(c.code));
        result += escape;
      }
    }
    at += c.length;
  }
  return result + mark;
}

std::string joined(const List& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += ", ";
    text += items[i].repr();
  }
  return text;
}

}  // namespace

std::string Value::repr() const {
  switch (kind) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return whole != 0 ? "True" : "False";
    case Kind::integer:
      return std::to_string(whole);
    case Kind::real:
      return real_repr(real);
    case Kind::text:
      return quoted(*string);
    case Kind::list:
      return std::string("[").append(joined(*list)).append("]");
    case Kind::tuple:
      return std::string("(").append(joined(*list)).append(list->size() == 1 ? ",)" : ")");
    case Kind::dict: {
      std::string text = "{";
      for (size_t i = 0; i < dict->size(); ++i) {
        if (i > 0) text += ", ";
        text += (*dict)[i].first.repr();
        text += ": ";
        text += (*dict)[i].second.repr();
      }
      return text + "}";
    }
    default:
      return std::string("<") + type_name() + ">";
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_whole() && b.is_whole() ? a.whole == b.whole : a.as_real() == b.as_real();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      return *a.string == *b.string;
    case Kind::list:
    case Kind::tuple:
      return std::equal(a.list->begin(), a.list->end(), b.list->begin(), b.list->end(), equal);
    case Kind::dict: {
      if (a.dict->size() != b.dict->size()) return false;
      return std::all_of(a.dict->begin(), a.dict->end(), [&](const auto& entry) {
        return std::any_of(b.dict->begin(), b.dict->end(), [&](const auto& other) {
          return equal(entry.first, other.first) && equal(entry.second, other.second);
        });
      });
    }
    case Kind::space:
      return a.dict == b.dict;
    case Kind::macro:
      return a.macro == b.macro;
    default:
      return *a.string == *b.string;
  }
}

int compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.whole < b.whole ? -1 : a.whole > b.whole;
    return a.as_real() < b.as_real() ? -1 : a.as_real() > b.as_real();
  }
  if (a.is_text() && b.is_text()) return a.string->compare(*b.string);
  if (a.is_list() && a.kind == b.kind) {
    for (size_t i = 0; i < std::min(a.list->size(), b.list->size()); ++i) {
      if (!equal((*a.list)[i], (*b.list)[i])) return compare((*a.list)[i], (*b.list)[i]);
    }
    return static_cast<int>(a.list->size() > b.list->size()) -
           static_cast<int>(a.list->size() < b.list->size());
  }
  throw TemplateError(std::string("a ") + a.type_name() + " cannot be compared with a " +
                      b.type_name());
}

namespace {

void append_json_text(std::string& to, std::string_view text, bool ascii) {
  if (!ascii) {
    append_quoted(to, text);
    return;
  }
  std::string quoted;
  append_quoted(quoted, text);
  for (size_t at = 0; at < quoted.size();) {
    const Character c = character_at(quoted, at);
    char escape[16];
    if (c.code < 0x7f) {
      to += static_cast<char>(c.code);
    } else if (c.code < 0x10000) {
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c.code));
      to += escape;
    } else {
      const unsigned rest = c.code - 0x10000;
      std::snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + (rest >> 10),
                    0xdc00 + (rest & 0x3ff));
      to += escape;
    }
    at += c.length;
  }
}

void append_json(std::string& to, const Value& value, const JsonStyle& style, size_t depth) {
  const auto line = [&](size_t level) {
    if (!style.indented) return;
    to += '\n';
    for (size_t i = 0; i < level; ++i) to += style.indent;
  };
  switch (value.kind) {
    case Kind::none:
      to += "null";
      return;
    case Kind::boolean:
      to += value.whole != 0 ? "true" : "false";
      return;
    case Kind::integer:
      to += std::to_string(value.whole);
      return;
    case Kind::real:
      to += real_repr(value.real);
      return;
    case Kind::text:
      append_json_text(to, *value.string, style.ascii);
      return;
    case Kind::list:
    case Kind::tuple: {
      to += '[';
      for (size_t i = 0; i < value.list->size(); ++i) {
        if (i > 0) to += style.item;
        line(depth + 1);
        append_json(to, (*value.list)[i], style, depth + 1);
      }
      if (!value.list->empty()) line(depth);
      to += ']';
      return;
    }
    case Kind::dict: {
      Dict entries = *value.dict;
      if (style.sorted) {
        std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
          return compare(a.first, b.first) < 0;
        });
      }
      to += '{';
      for (size_t i = 0; i < entries.size(); ++i) {
        if (i > 0) to += style.item;
        line(depth + 1);
        append_json_text(to, entries[i].first.str(), style.ascii);
        to += style.key;
        append_json(to, entries[i].second, style, depth + 1);
      }
      if (!entries.empty()) line(depth);
      to += '}';
      return;
    }
    default:
      throw TemplateError(std::string("a ") + value.type_name() + " is not JSON");
  }
}

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string text;
  append_json(text, value, style, 0);
  return text;
}

size_t length_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> result;
  for (size_t at = 0; at < text.size();) {
    const uint32_t length = character_at(text, at).length;
    result.push_back(text.substr(at, length));
    at += length;
  }
  return result;
}

}  // namespace satchel::llm::jinja
