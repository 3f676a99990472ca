#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "functions.h"
#include "texts.h"

namespace satchel::llm::jinja {

namespace {

Value path_of(const Value& of, const Value& attribute) {
  if (attribute.is_whole()) return item_of(of, attribute);
  Value found = of;
  const std::string& path = text_of(attribute, "an attribute");
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    found = item_of(found, Value::text(path.substr(at, end - at)));
    at = end + 1;
  }
  return found;
}

List chosen(const Value& on, const Arguments& given, bool by_attribute, bool wanted) {
  List result;
  for (const Value& item : items_of(on)) {
    const size_t first = by_attribute ? 1 : 0;
    const Value tested = by_attribute ? path_of(item, given.get(0, "")) : item;
    const Value test = given.get(first, "");
    Arguments rest;
    for (size_t i = first + 1; i < given.places.size(); ++i) rest.places.push_back(given.places[i]);
    const bool good =
        test.is_defined() ? call_test(text_of(test, "a test"), tested, rest) : tested.truthy();
    if (good == wanted) result.push_back(item);
  }
  return result;
}

List sorted(List items, const Arguments& given, bool reversed, const Value& attribute,
            bool with_case) {
  (void)given;
  const auto key = [&](const Value& item) {
    Value found =
        attribute.is_defined() && attribute.kind != Kind::none ? path_of(item, attribute) : item;
    if (!with_case && found.is_text()) found = Value::text(cased(*found.string, false));
    return found;
  };
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    return reversed ? compare(key(b), key(a)) < 0 : compare(key(a), key(b)) < 0;
  });
  return items;
}

double rounded(double value, int64_t digits, const std::string& how) {
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (how == "ceil") return std::ceil(value * scale) / scale;
  if (how == "floor") return std::floor(value * scale) / scale;
  return std::nearbyint(value * scale) / scale;
}

JsonStyle json_style(const Arguments& given) {
  JsonStyle style;
  style.ascii = given.get(0, "ensure_ascii").truthy();
  const Value indent = given.get(1, "indent"), marks = given.get(2, "separators");
  style.sorted = given.get(3, "sort_keys").truthy();
  if (indent.is_text() || indent.is_whole()) {
    style.indented = true;
    style.item = ",";
    if (indent.is_whole() && (indent.whole < 0 || indent.whole > 64))
      fail("an indentation is too wide");
    style.indent =
        indent.is_text() ? *indent.string : std::string(static_cast<size_t>(indent.whole), ' ');
  }
  if (marks.is_list() && marks.list->size() == 2) {
    style.item = text_of((*marks.list)[0], "a separator");
    style.key = text_of((*marks.list)[1], "a separator");
  }
  return style;
}

Value number_from(const Value& on, bool real, const Value& otherwise) {
  if (on.is_number())
    return real ? Value::number(on.as_real())
                : Value::integer(on.is_whole() ? on.whole : static_cast<int64_t>(on.real));
  if (on.is_text()) {
    const std::string digits = stripped(*on.string, nullptr, true, true);
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    if (!digits.empty() && *end == 0 && std::isfinite(value))
      return real ? Value::number(value) : Value::integer(static_cast<int64_t>(value));
  }
  if (otherwise.is_defined()) return otherwise;
  return real ? Value::number(0) : Value::integer(0);
}

}  // namespace

Value call_method(const Value& on, const std::string& name, const Arguments& given,
                  Budget& budget) {
  budget.step();
  if (on.is_text()) {
    budget.keep(on.string->size());
    return call_text(*on.string, name, given, budget);
  }
  if (on.is_list()) {
    if (name == "copy") return Value::of(*on.list, on.kind);
    int64_t count = 0;
    for (size_t i = 0; i < on.list->size(); ++i) {
      if (!equal((*on.list)[i], given.get(0, ""))) continue;
      if (name == "index") return Value::integer(static_cast<int64_t>(i));
      ++count;
    }
    if (name == "index") fail("the value is not in the list");
    return Value::integer(count);
  }
  if (name == "copy") return Value::of(*on.dict);
  if (name == "get") {
    for (const auto& [key, value] : *on.dict) {
      if (equal(key, given.get(0, ""))) return value;
    }
    const Value otherwise = given.get(1, "default");
    return otherwise.is_defined() ? otherwise : Value::none();
  }
  List items;
  for (const auto& [key, value] : *on.dict) {
    if (name == "keys") {
      items.push_back(key);
    } else if (name == "values") {
      items.push_back(value);
    } else {
      items.push_back(Value::of(List{key, value}, Kind::tuple));
    }
  }
  budget.keep(items.size() * 16);
  return Value::of(std::move(items));
}

Value call_filter(const std::string& name, const Value& on, const Arguments& given,
                  Budget& budget) {
  budget.step();
  if (on.is_text()) budget.keep(on.string->size());
  if (on.is_list()) budget.keep(on.list->size() * 16);
  if (name == "default" || name == "d") {
    const bool use = !on.is_defined() || (given.get(1, "boolean").truthy() && !on.truthy());
    const Value otherwise = given.get(0, "default_value");
    return use ? (otherwise.is_defined() ? otherwise : Value::text("")) : on;
  }
  if (name == "length" || name == "count") {
    if (on.is_text()) return Value::integer(static_cast<int64_t>(length_of(*on.string)));
    if (on.is_dict()) return Value::integer(static_cast<int64_t>(on.dict->size()));
    return Value::integer(static_cast<int64_t>(items_of(on).size()));
  }
  if (name == "tojson") {
    std::string json = to_json(on, json_style(given));
    budget.keep(json.size());
    return Value::text(std::move(json));
  }
  if (name == "string" || name == "safe") return on.is_text() ? on : Value::text(on.str());
  if (name == "trim") {
    const Value characters = given.get(0, "chars");
    const std::string text = on.str();
    return Value::text(
        stripped(text, characters.is_text() ? characters.string.get() : nullptr, true, true));
  }
  if (name == "upper" || name == "lower") return Value::text(cased(on.str(), name == "upper"));
  if (name == "capitalize") return Value::text(capitalized(on.str()));
  if (name == "title") return Value::text(titled(on.str()));
  if (name == "indent") return Value::text(indented(on.str(), given, budget));
  if (name == "e" || name == "escape") {
    std::string text;
    for (const char c : on.str()) {
      switch (c) {
        case '&':
          text += "&amp;";
          break;
        case '<':
          text += "&lt;";
          break;
        case '>':
          text += "&gt;";
          break;
        case '"':
          text += "&#34;";
          break;
        case '\'':
          text += "&#39;";
          break;
        default:
          text += c;
      }
    }
    return Value::text(std::move(text));
  }
  if (name == "replace") {
    const Value count = given.get(2, "count");
    return Value::text(replaced(on.str(), given.get(0, "old").str(), given.get(1, "new").str(),
                                count.is_whole() ? count.whole : -1, budget));
  }
  if (name == "int") return number_from(on, false, given.get(0, "default"));
  if (name == "float") return number_from(on, true, given.get(0, "default"));
  if (name == "abs") {
    if (!on.is_number()) fail("abs is of numbers");
    return on.is_whole() ? Value::integer(std::abs(on.whole)) : Value::number(std::abs(on.real));
  }
  if (name == "round") {
    const Value digits = given.get(0, "precision"), how = given.get(1, "method");
    if (digits.is_whole() && std::abs(digits.whole) > 100) fail("a precision is too large");
    return Value::number(rounded(on.as_real(), digits.is_whole() ? digits.whole : 0,
                                 how.is_text() ? *how.string : "common"));
  }
  if (name == "items")
    return on.is_defined() ? call_method(on.is_dict() ? on : (fail("items is of mappings"), on),
                                         "items", {}, budget)
                           : Value::of(List{});
  if (name == "dictsort") {
    if (!on.is_dict()) fail("dictsort is of mappings");
    Value pairs = call_method(on, "items", {}, budget);
    const Value by = given.get(1, "by");
    const Value attribute = Value::integer(by.is_text() && *by.string == "value" ? 1 : 0);
    return Value::of(sorted(*pairs.list, given, given.get(2, "reverse").truthy(), attribute,
                            given.get(0, "case_sensitive").truthy()));
  }
  if (name == "join") {
    List items = items_of(on);
    const Value attribute = given.get(1, "attribute"), mark = given.get(0, "d");
    if (attribute.is_defined()) {
      for (Value& item : items) item = path_of(item, attribute);
    }
    return Value::text(joined(items, mark.str(), false, budget));
  }
  if (name == "select" || name == "reject")
    return Value::of(chosen(on, given, false, name == "select"));
  if (name == "selectattr" || name == "rejectattr")
    return Value::of(chosen(on, given, true, name == "selectattr"));
  List items = items_of(on);
  if (name == "list") return Value::of(std::move(items));
  if (name == "first") return items.empty() ? Value::undefined("the first item") : items.front();
  if (name == "last") return items.empty() ? Value::undefined("the last item") : items.back();
  if (name == "reverse") {
    std::reverse(items.begin(), items.end());
    if (on.is_text()) return Value::text(joined(items, "", true, budget));
    return Value::of(std::move(items));
  }
  if (name == "sort")
    return Value::of(sorted(std::move(items), given, given.get(0, "reverse").truthy(),
                            given.get(2, "attribute"), given.get(1, "case_sensitive").truthy()));
  if (name == "unique") {
    List found;
    for (const Value& item : items) {
      const auto same = [&](const Value& other) {
        if (item.is_text() && other.is_text())
          return cased(*item.string, false) == cased(*other.string, false);
        return equal(item, other);
      };
      budget.step(found.size());
      if (std::none_of(found.begin(), found.end(), same)) found.push_back(item);
    }
    return Value::of(std::move(found));
  }
  if (name == "map") {
    const Value attribute = given.get(99, "attribute");
    Arguments rest;
    for (size_t i = 1; i < given.places.size(); ++i) rest.places.push_back(given.places[i]);
    for (Value& item : items) {
      item = attribute.is_defined()
                 ? path_of(item, attribute)
                 : call_filter(text_of(given.get(0, ""), "a filter"), item, rest, budget);
      if (attribute.is_defined() && !item.is_defined() && given.get(98, "default").is_defined())
        item = given.get(98, "default");
    }
    return Value::of(std::move(items));
  }
  if (name == "max" || name == "min") {
    if (items.empty()) return Value::undefined("the largest of nothing");
    size_t best = 0;
    for (size_t i = 1; i < items.size(); ++i) {
      const int order = compare(items[i], items[best]);
      if (name == "max" ? order > 0 : order < 0) best = i;
    }
    return items[best];
  }
  if (name == "sum") {
    Value total = Value::integer(0);
    const Value attribute = given.get(0, "attribute");
    for (const Value& item : items) {
      const Value one = attribute.is_defined() ? path_of(item, attribute) : item;
      if (!one.is_number()) fail("only numbers can be added up");
      total = total.is_whole() && one.is_whole() ? Value::integer(total.whole + one.whole)
                                                 : Value::number(total.as_real() + one.as_real());
    }
    return total;
  }
  fail("the filter '" + name + "' is not done by the native template engine");
}

bool call_test(const std::string& name, const Value& on, const Arguments& given) {
  const Value other = given.get(0, "");
  if (name == "defined") return on.is_defined();
  if (name == "undefined") return !on.is_defined();
  if (name == "none") return on.kind == Kind::none;
  if (name == "string") return on.is_text();
  if (name == "mapping") return on.is_dict();
  if (name == "boolean") return on.is_boolean();
  if (name == "true" || name == "false")
    return on.is_boolean() && (on.whole != 0) == (name == "true");
  if (name == "integer") return on.kind == Kind::integer;
  if (name == "float") return on.kind == Kind::real;
  if (name == "number") return on.is_number();
  if (name == "sequence") return on.is_text() || on.is_list() || on.is_dict() || !on.is_defined();
  if (name == "iterable") return on.is_text() || on.is_list() || on.is_dict() || !on.is_defined();
  if (name == "callable") return on.kind == Kind::function || on.kind == Kind::macro;
  if (name == "lower") return on.str() == cased(on.str(), false);
  if (name == "upper") return on.str() == cased(on.str(), true);
  if (name == "in") return contains(other, on);
  if (name == "eq" || name == "equalto" || name == "sameas") return equal(on, other);
  if (name == "ne") return !equal(on, other);
  if (name == "lt" || name == "lessthan") return compare(on, other) < 0;
  if (name == "le") return compare(on, other) <= 0;
  if (name == "gt" || name == "greaterthan") return compare(on, other) > 0;
  if (name == "ge") return compare(on, other) >= 0;
  const int64_t number = whole_of(on, "a number");
  if (name == "odd") return number % 2 != 0;
  if (name == "even") return number % 2 == 0;
  if (name == "divisibleby") {
    const int64_t by = whole_of(other, "a divisor");
    if (by == 0) fail("a division by zero");
    return number % by == 0;
  }
  fail("the test '" + name + "' is not done by the native template engine");
}

}  // namespace satchel::llm::jinja
