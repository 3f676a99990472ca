#include "reals.h"

#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace satchel::llm {

namespace {

// A positive number with some digits: "d.ddde-dd".
std::string with_digits(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*e", digits - 1, value);
  return text;
}

bool reads_as(const std::string& text, double value) {
  return std::strtod(text.c_str(), nullptr) == value;
}

// The same with one more in the last digit.
std::string next_above(std::string text) {
  for (size_t i = text.find('e'); i-- > 0;) {
    if (i == 1) continue;  // the point, whatever the locale writes for it
    if (text[i]++ != '9') return text;
    text[i] = '0';
  }
  return text;  // nines alone, which are no power of two
}

// Not std::to_chars, whose tables are a twentieth of a small program. A number of up to 15 digits
// comes back from a double; one of 17 tells every double from every other.
std::string fewest_digits(double value) {
  if (value < DBL_MIN) {  // has fewer bits, so that fewer digits may do
    for (int digits = 1; digits < 15; ++digits) {
      if (const auto text = with_digits(value, digits); reads_as(text, value)) return text;
    }
  }
  for (const int digits : {15, 16}) {
    const std::string text = with_digits(value, digits);
    if (reads_as(text, value)) return text;
    // Below a power of two, numbers are twice as close as above: there the nearest may be read as
    // another, and one that is further away as this.
    if (const auto above = next_above(text); reads_as(above, value)) return above;
  }
  return with_digits(value, 17);
}

}  // namespace

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  const std::string sign = std::signbit(value) ? "-" : "";
  const double size = std::abs(value);
  if (std::isinf(size)) return sign + "inf";
  if (size == 0) return sign + "0.0";
  const std::string text = fewest_digits(size);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  std::string digits = text.substr(0, 1);
  if (e > 2) digits += text.substr(2, e - 2);  // behind the point
  digits.erase(digits.find_last_not_of('0') + 1);
  if (exponent < -4 || exponent >= 16) {
    if (digits.size() > 1) digits.insert(1, ".");
    return sign + digits + text.substr(e);
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t before = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= before)
    return sign + digits + std::string(before - digits.size(), '0') + ".0";
  return sign + digits.insert(before, ".");
}

}  // namespace satchel::llm
