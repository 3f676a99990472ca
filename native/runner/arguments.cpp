#include "arguments.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "commands.h"

namespace satchel::runner {

Arguments::Arguments(int argc, char** argv, const std::vector<std::string>& known) {
  bool flags = true;
  for (int i = 0; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "-p") word = "--prompt";
    if (flags && word == "--") {
      flags = false;
      continue;
    }
    // A prompt may begin with a dash, but not be one with a letter: that is a mistyped option.
    if (flags && word.size() == 2 && word[0] == '-' && std::isalpha(static_cast<uint8_t>(word[1])))
      throw UsageError("there is no option " + word);
    if (!flags || word.size() < 2 || !word.starts_with("--")) {
      places_.push_back(std::move(word));
      continue;
    }
    const size_t equals = word.find('=');
    const std::string flag = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const bool valued = std::find(known.begin(), known.end(), flag + "=") != known.end();
    if (!valued && std::find(known.begin(), known.end(), flag) == known.end())
      throw UsageError("there is no option --" + flag);
    std::string value;
    if (valued && equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (valued) {
      if (++i == argc) throw UsageError("--" + flag + " needs a value");
      value = argv[i];
    } else if (equals != std::string::npos) {
      throw UsageError("--" + flag + " takes no value");
    }
    values_[flag].push_back(std::move(value));
  }
}

std::optional<std::string> Arguments::text(const std::string& flag) const {
  const auto found = values_.find(flag);
  if (found == values_.end()) return std::nullopt;
  return found->second.back();
}

std::vector<std::string> Arguments::texts(const std::string& flag) const {
  const auto found = values_.find(flag);
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

std::optional<double> Arguments::number(const std::string& flag) const {
  const auto given = text(flag);
  if (!given) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(given->c_str(), &end);
  if (given->empty() || *end != 0 || !std::isfinite(value))
    throw UsageError("--" + flag + " is a number, not '" + *given + "'");
  return value;
}

std::optional<int64_t> Arguments::whole(const std::string& flag, int64_t least,
                                        int64_t most) const {
  const auto given = text(flag);
  if (!given) return std::nullopt;
  int64_t value = 0;
  const char* last = given->data() + given->size();
  const auto [end, error] = std::from_chars(given->data(), last, value);
  if (error != std::errc() || end != last || value < least || value > most) {
    const std::string range = most == INT64_MAX ? " on" : " to " + std::to_string(most);
    throw UsageError("--" + flag + " is a whole number from " + std::to_string(least) + range +
                     ", not '" + *given + "'");
  }
  return value;
}

}  // namespace satchel::runner
