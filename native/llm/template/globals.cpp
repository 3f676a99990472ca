// The functions that templates call by name.
#include <ctime>

#include "functions.h"

namespace satchel::llm::jinja {

namespace {

constexpr int64_t kLongestRange = 100000;  // jinja2's sandbox has the same

Value range(const Arguments& given, Budget& budget) {
  int64_t numbers[3] = {0, 0, 1};
  const size_t count = given.places.size();
  if (count < 1 || count > 3) fail("range takes one to three numbers");
  for (size_t i = 0; i < count; ++i) {
    if (!given.places[i].is_whole()) fail("range takes whole numbers");
    numbers[count == 1 ? 1 : i] = given.places[i].whole;
  }
  const auto [first, last, step] = numbers;
  if (step == 0) fail("range cannot have the step 0");
  List items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    if (static_cast<int64_t>(items.size()) >= kLongestRange) fail("a range is too long");
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  budget.keep(items.size() * 16);
  return Value::of(std::move(items));
}

}  // namespace

void set_entry(Dict& entries, const Value& key, Value value) {
  for (auto& [known, held] : entries) {
    if (equal(known, key)) {
      held = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

Value call_global(const std::string& name, const Arguments& given, Budget& budget) {
  if (name == "raise_exception") fail(given.get(0, "message").str());
  if (name == "range") return range(given, budget);
  if (name == "strftime_now") {
    const std::string pattern = given.get(0, "pattern").str();
    if (pattern.size() > 100) fail("the pattern of a date is too long");
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
#ifdef _WIN32
    localtime_s(&parts, &now);
#else
    localtime_r(&now, &parts);
#endif
    char text[1024];
    return Value::text(
        std::string(text, std::strftime(text, sizeof text, pattern.c_str(), &parts)));
  }
  Dict entries;
  if (!given.places.empty()) {
    if (!given.places[0].is_dict()) fail(name + "() takes a mapping");
    entries = *given.places[0].dict;
  }
  for (const auto& [key, value] : given.names) set_entry(entries, Value::text(key), value);
  return Value::of(std::move(entries), name == "dict" ? Kind::dict : Kind::space);
}

}  // namespace satchel::llm::jinja
