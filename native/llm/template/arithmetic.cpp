// Signs between values.
#include <cmath>

#include "functions.h"

namespace satchel::llm::jinja {

Value signed_value(const std::string& sign, const Value& value) {
  if (!value.is_number()) fail(std::string("a ") + value.type_name() + " has no sign");
  if (!value.is_whole()) return sign == "+" ? value : Value::number(-value.real);
  if (sign == "+") return Value::integer(value.whole);
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.whole, &result)) fail("a number is too large");
  return Value::integer(result);
}

Value joined(const std::string& a, const std::string& b, Budget& budget) {
  budget.keep(a.size() + b.size());
  return Value::text(a + b);
}

Value repeated(const Value& what, int64_t times, Budget& budget) {
  times = std::max<int64_t>(times, 0);
  const size_t size = what.is_text()   ? what.string->size()
                      : what.is_list() ? what.list->size() * 16
                                       : 1;
  if (times > 1 << 20) fail("something is repeated too often");
  budget.step(static_cast<size_t>(times) * (1 + size / 16));
  if (what.is_text()) {
    std::string text;
    for (int64_t i = 0; i < times; ++i) text += *what.string;
    return Value::text(std::move(text));
  }
  if (!what.is_list()) fail(std::string("a ") + what.type_name() + " cannot be repeated");
  List items;
  for (int64_t i = 0; i < times; ++i)
    items.insert(items.end(), what.list->begin(), what.list->end());
  return Value::of(std::move(items), what.kind);
}

Value calculated(const std::string& sign, const Value& left, const Value& right) {
  const bool whole = left.is_whole() && right.is_whole();
  const double a = left.as_real(), b = right.as_real();
  if ((sign == "/" || sign == "//" || sign == "%") && b == 0) fail("a division by zero");
  if (sign == "/") return Value::number(a / b);
  if (whole && sign != "**") {
    int64_t result = 0;
    bool overflow = false;
    if (sign == "+") overflow = __builtin_add_overflow(left.whole, right.whole, &result);
    if (sign == "-") overflow = __builtin_sub_overflow(left.whole, right.whole, &result);
    if (sign == "*") overflow = __builtin_mul_overflow(left.whole, right.whole, &result);
    if (sign == "//" || sign == "%") {
      if (right.whole == -1)  // by which the processor could not divide the least number
        return sign == "%" ? Value::integer(0) : signed_value("-", left);
      const int64_t rest = left.whole % right.whole;
      const bool moves = rest != 0 && (rest < 0) != (right.whole < 0);
      result = sign == "%" ? rest + (moves ? right.whole : 0)
                           : left.whole / right.whole - (moves ? 1 : 0);
    }
    if (overflow) fail("a number is too large");
    return Value::integer(result);
  }
  if (sign == "+") return Value::number(a + b);
  if (sign == "-") return Value::number(a - b);
  if (sign == "*") return Value::number(a * b);
  if (sign == "//") return Value::number(std::floor(a / b));
  if (sign == "%") return Value::number(a - std::floor(a / b) * b);
  const double power = std::pow(a, b);
  if (!std::isfinite(power) || (whole && std::abs(power) > 9e15)) fail("a number is too large");
  return whole && b >= 0 ? Value::integer(static_cast<int64_t>(power)) : Value::number(power);
}

}  // namespace satchel::llm::jinja
