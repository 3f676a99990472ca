// Filters, tests and methods that chat templates call.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "value.h"

namespace satchel::llm::jinja {

struct Arguments {
  std::vector<Value> places;
  std::vector<std::pair<std::string, Value>> names;

  // By its place or its name; undefined if it is not given.
  Value get(size_t place, std::string_view name) const;
};

// How much a template may do. Throws TemplateError when it is spent.
class Budget {
 public:
  void step(size_t count = 1);
  // A text or list of this size is made.
  void keep(size_t size) { step(1 + size / 16); }

 private:
  size_t left_ = 2'000'000;
};

[[noreturn]] void fail(const std::string& message);

Value call_filter(const std::string& name, const Value& on, const Arguments& given, Budget& budget);
// range, namespace and their like.
Value call_global(const std::string& name, const Arguments& given, Budget& budget);
bool call_test(const std::string& name, const Value& on, const Arguments& given);
bool has_method(const Value& on, std::string_view name);
Value call_method(const Value& on, const std::string& name, const Arguments& given, Budget& budget);

// + and - before a value, and signs between two numbers.
Value signed_value(const std::string& sign, const Value& value);
Value calculated(const std::string& sign, const Value& left, const Value& right);
Value joined(const std::string& a, const std::string& b, Budget& budget);
Value repeated(const Value& what, int64_t times, Budget& budget);
void set_entry(Dict& entries, const Value& key, Value value);

// What a loop goes through: a list's items, a dict's keys, a text's characters.
List items_of(const Value& value);
bool contains(const Value& whole, const Value& part);
Value item_of(const Value& of, const Value& key);
Value attribute_of(const Value& of, const std::string& name);
// The text or number that a value must be.
const std::string& text_of(const Value& value, const char* what);
int64_t whole_of(const Value& value, const char* what);

}  // namespace satchel::llm::jinja
