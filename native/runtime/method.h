// The methods of a program, decoded and proven: every index, type and place in memory.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "program_file.h"
#include "types.h"

namespace satchel {

struct OpSchema;

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

// The few that a node has, by name.
class Attributes {
 public:
  bool add(std::string name, Attribute value) {  // false if there is one of that name
    if (find(name)) return false;
    items_.emplace_back(std::move(name), std::move(value));
    return true;
  }
  const Attribute* find(std::string_view name) const {  // null if there is none
    const auto found = std::find_if(items_.begin(), items_.end(),
                                    [&](const auto& item) { return item.first == name; });
    return found == items_.end() ? nullptr : &found->second;
  }

 private:
  std::vector<std::pair<std::string, Attribute>> items_;
};

struct StateInfo {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  uint64_t bytes;
  const uint8_t* initial = nullptr;  // what it is at first, in the file; null: zeros
  // Kept for each sequence, [heads, context, row], in pages: see sequences.h.
  bool is_cache = false;
};

struct SymbolInfo {
  struct Step {
    char kind;  // one of * + - /
    int64_t number;
    std::vector<int64_t> symbols = {};  // other sizes that the number is multiplied by
  };

  std::string name;
  int64_t maximum;
  // Of a size that is computed from another one: which, and what is done with it in turn.
  int64_t base = -1;
  std::vector<Step> steps = {};

  // Whether a condition holds for any of the symbols that this one, the number-th, is made of.
  template <typename Condition>
  bool any_base(int64_t number, Condition holds) const {
    if (holds(base < 0 ? number : base)) return true;
    return std::any_of(steps.begin(), steps.end(), [&](const Step& step) {
      return std::any_of(step.symbols.begin(), step.symbols.end(), holds);
    });
  }
  // The node that finds this size out as the method runs; -1: it is known before. Only such sizes
  // may be 0, and what is computed from them.
  int64_t decided_by = -1;
};

// Computes the sizes that others decide; false if one is below 1 (0 if it is computed from a size
// of 0) or above its maximum.
bool compute_sizes(const std::vector<SymbolInfo>& symbols, std::vector<int64_t>& sizes);

enum class Storage : uint8_t { input = 0, arena = 1, weight = 2, state = 3 };

struct ValueInfo {
  std::string name;
  Storage storage;
  uint64_t location;  // number of the input, weight or state, or offset in the arena
  DType dtype;
  std::vector<int64_t> shape;  // -1 - k: symbol k
  uint64_t max_bytes;
};

inline constexpr uint32_t kAbsent = 0xFFFFFFFF;

struct NodeInfo {
  const OpSchema* op;
  std::vector<uint32_t> inputs;  // kAbsent for an optional input that is not there
  uint32_t output;
  Attributes attributes;
};

struct Method {
  std::string name;
  uint64_t arena_size;
  std::vector<SymbolInfo> symbols;
  std::vector<ValueInfo> values;
  std::vector<uint32_t> inputs, outputs;
  std::vector<NodeInfo> nodes;
};

struct MethodTable {
  std::vector<StateInfo> states;
  std::vector<Method> methods;
};

MethodTable read_methods(const ProgramFile& file);

}  // namespace satchel
