// The runner's command line: the same flags as Python's commands.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace satchel::llm {
class Model;
}

namespace satchel::runner {

constexpr int64_t kMostThreads = 1024;

class Arguments {
 public:
  // Flags that take a value end with '='. Throws UsageError.
  Arguments(int argc, char** argv, const std::vector<std::string>& known);

  const std::vector<std::string>& places() const { return places_; }
  bool has(const std::string& flag) const { return values_.contains(flag); }
  std::optional<std::string> text(const std::string& flag) const;
  std::vector<std::string> texts(const std::string& flag) const;  // of one that is repeatable
  std::optional<double> number(const std::string& flag) const;
  std::optional<int64_t> whole(const std::string& flag, int64_t least,
                               int64_t most = INT64_MAX) const;

 private:
  std::vector<std::string> places_;
  std::map<std::string, std::vector<std::string>> values_;
};

// Opens a language model where it is to run: as --target says, else on the NPU if that is usual for
// the file, else on the CPU.
std::shared_ptr<llm::Model> open_model(const Arguments& given, const std::string& path);

}  // namespace satchel::runner
