#include <algorithm>
#include <set>

#include "../errors.h"
#include "functions.h"

namespace satchel::llm::jinja {

Value Arguments::get(size_t place, std::string_view name) const {
  if (place < places.size()) return places[place];
  for (const auto& [given, value] : names) {
    if (given == name) return value;
  }
  return Value::undefined();
}

void Budget::step(size_t count) {
  if (count > left_) fail("it takes too long, or makes too much text");
  left_ -= count;
}

void fail(const std::string& message) { throw TemplateError(message); }

const std::string& text_of(const Value& value, const char* what) {
  if (!value.is_text()) fail(std::string(what) + " must be a text, not a " + value.type_name());
  return *value.string;
}

int64_t whole_of(const Value& value, const char* what) {
  if (!value.is_whole()) fail(std::string(what) + " must be a whole number");
  return value.whole;
}

List items_of(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return {};
    case Kind::list:
    case Kind::tuple:
      return *value.list;
    case Kind::dict: {
      List keys;
      for (const auto& entry : *value.dict) keys.push_back(entry.first);
      return keys;
    }
    case Kind::text: {
      List characters;
      for (const std::string_view c : characters_of(*value.string))
        characters.push_back(Value::text(std::string(c)));
      return characters;
    }
    default:
      fail(std::string("a ") + value.type_name() + " cannot be gone through");
  }
}

bool contains(const Value& whole, const Value& part) {
  if (whole.is_text())
    return whole.string->find(text_of(part, "what is looked for")) != std::string::npos;
  const List items = items_of(whole);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& item) { return equal(item, part); });
}

Value item_of(const Value& of, const Value& key) {
  if (of.kind == Kind::undefined)
    fail("'" + (of.string ? *of.string : "a value") + "' is undefined");
  if ((of.is_list() || of.is_text()) && key.is_whole()) {
    const auto characters =
        of.is_text() ? characters_of(*of.string) : std::vector<std::string_view>{};
    const auto size = static_cast<int64_t>(of.is_text() ? characters.size() : of.list->size());
    const int64_t at = key.whole < 0 ? key.whole + size : key.whole;
    if (at < 0 || at >= size) return Value::undefined("an item");
    if (of.is_text()) return Value::text(std::string(characters[static_cast<size_t>(at)]));
    return (*of.list)[static_cast<size_t>(at)];
  }
  if (of.is_dict()) {
    for (const auto& [name, value] : *of.dict) {
      if (equal(name, key)) return value;
    }
  }
  if (key.is_text()) return attribute_of(of, *key.string);
  return Value::undefined(key.str());
}

Value attribute_of(const Value& of, const std::string& name) {
  if (of.kind == Kind::undefined)
    fail("'" + (of.string ? *of.string : "a value") + "' is undefined");
  if (has_method(of, name)) return Value::function(name);
  if (const Value* found = of.find(name)) return *found;
  return Value::undefined(name);
}

bool has_method(const Value& on, std::string_view name) {
  static const std::set<std::string_view> kText = {
      "capitalize", "count",  "endswith", "find",         "isdigit",      "isspace",
      "join",       "lower",  "lstrip",   "removeprefix", "removesuffix", "replace",
      "rfind",      "rsplit", "rstrip",   "split",        "splitlines",   "startswith",
      "strip",      "title",  "upper",    "partition",    "rpartition"};
  static const std::set<std::string_view> kDict = {"copy", "get", "items", "keys", "values"};
  static const std::set<std::string_view> kList = {"copy", "count", "index"};
  if (on.is_text()) return kText.contains(name);
  if (on.is_dict()) return kDict.contains(name);
  return on.is_list() && kList.contains(name);
}

}  // namespace satchel::llm::jinja
