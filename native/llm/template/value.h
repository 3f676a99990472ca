// Values of chat templates: JSON's, and what the language has besides. They
// behave as Python's do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../json.h"

namespace satchel::llm::jinja {

struct Macro;
struct Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<Value, Value>>;  // in the order of insertion

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  dict,
  space,
  macro,
  function
};

struct Value {
  Kind kind = Kind::undefined;
  int64_t whole = 0;  // also of booleans
  double real = 0;
  std::shared_ptr<const std::string> string;  // of texts; the name of functions and undefined ones
  std::shared_ptr<List> list;
  std::shared_ptr<Dict> dict;  // of namespaces too, which share it
  std::shared_ptr<const Macro> macro;

  static Value undefined(std::string name = "");
  static Value none() { return made(Kind::none); }
  static Value boolean(bool value) { return made(Kind::boolean, value ? 1 : 0); }
  static Value integer(int64_t value) { return made(Kind::integer, value); }
  static Value number(double value);
  static Value text(std::string value);
  static Value function(std::string name);
  static Value of(List items, Kind kind = Kind::list);
  static Value of(Dict items, Kind kind = Kind::dict);
  static Value from(const Json& json);

  bool is_number() const { return kind == Kind::integer || kind == Kind::real || is_boolean(); }
  bool is_whole() const { return kind == Kind::integer || is_boolean(); }
  bool is_boolean() const { return kind == Kind::boolean; }
  bool is_text() const { return kind == Kind::text; }
  bool is_list() const { return kind == Kind::list || kind == Kind::tuple; }
  bool is_dict() const { return kind == Kind::dict; }
  bool is_defined() const { return kind != Kind::undefined; }
  double as_real() const { return kind == Kind::real ? real : static_cast<double>(whole); }
  bool truthy() const;
  const Value* find(std::string_view key) const;  // of a dict or namespace; null if there is none

  const char* type_name() const;
  std::string str() const;   // what {{ }} writes
  std::string repr() const;  // within lists and dicts

 private:
  static Value made(Kind kind, int64_t whole = 0) {
    Value value;
    value.kind = kind;
    value.whole = whole;
    return value;
  }
};

bool equal(const Value& a, const Value& b);
// Below 0, 0 or above 0; throws TemplateError if the two cannot be compared.
int compare(const Value& a, const Value& b);

struct JsonStyle {
  bool ascii = false, sorted = false, indented = false;
  std::string indent, item = ", ", key = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style);

size_t length_of(std::string_view text);  // in characters
std::vector<std::string_view> characters_of(std::string_view text);

}  // namespace satchel::llm::jinja
