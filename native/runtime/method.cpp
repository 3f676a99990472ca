#include "method.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "cursor.h"
#include "op.h"

namespace satchel {

namespace {

constexpr uint64_t kArenaAlignment = 256;
constexpr uint32_t kMaxMethods = 1024;
constexpr uint32_t kMaxSymbols = 1024;
// An op's name of three letters, an input, an output and no attributes.
constexpr uint64_t kSmallestNode = (2 + 3) + (1 + 4) + (1 + 4) + 1;

// What lies in the arena at one point of a method. A value is there from the node that writes it
// until a node writes over any part of it. It may be read under another shape that has the same
// elements for all sizes of the symbols: a reshape has no node of its own.
class ArenaContents {
 public:
  void write(const ValueInfo& v) {
    auto at = held_.upper_bound(v.location);
    if (at != held_.begin() && end_of(*std::prev(at)) > v.location) --at;
    while (at != held_.end() && at->first < v.location + v.max_bytes) at = held_.erase(at);
    held_.emplace(v.location, contents_of(v));
  }

  bool holds(const ValueInfo& v) const {
    const auto found = held_.find(v.location);
    return found != held_.end() && found->second == contents_of(v);
  }

 private:
  struct Contents {
    DType dtype;
    uint64_t max_bytes;
    std::array<int64_t, kMaxRank> symbols;  // sorted; 0 where there is none

    bool operator==(const Contents&) const = default;
  };

  static Contents contents_of(const ValueInfo& v) {
    Contents contents{v.dtype, v.max_bytes, {}};
    for (size_t i = 0; i < v.shape.size(); ++i)
      contents.symbols[i] = std::min<int64_t>(v.shape[i], 0);
    std::sort(contents.symbols.begin(), contents.symbols.end());
    return contents;
  }

  static uint64_t end_of(const std::pair<const uint64_t, Contents>& entry) {
    return entry.first + entry.second.max_bytes;
  }

  std::map<uint64_t, Contents> held_;  // by place; no two overlap
};

// What a weight is called that a state begins as.
constexpr std::string_view kInitial = "initial/";

// The number of a symbol that is not computed itself; -1: there is none of that name.
int64_t find_symbol(const std::vector<SymbolInfo>& symbols, std::string_view name) {
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].name == name && symbols[i].base < 0) return static_cast<int64_t>(i);
  }
  return -1;
}

// "+1", "*s" or "+s*t*2": what is done with a size, by a number and other symbols.
bool read_step(std::string_view word, const std::vector<SymbolInfo>& before,
               SymbolInfo::Step& step) {
  constexpr int64_t kLargestNumber = 1 << 20;
  constexpr std::string_view kinds = "*+-/";
  if (word.size() < 2 || kinds.find(word[0]) == std::string_view::npos) return false;
  step = {word[0], 1};
  for (word.remove_prefix(1); !word.empty();) {
    const size_t end = std::min(word.find('*'), word.size());
    const std::string_view factor = word.substr(0, end);
    word.remove_prefix(std::min(end + 1, word.size()));
    int64_t number = 0;
    const char* last = factor.data() + factor.size();
    const auto [at, error] = std::from_chars(factor.data(), last, number);
    if (error == std::errc() && at == last) {
      if (number < 1 || number > kLargestNumber || step.number != 1) return false;
      step.number = number;
    } else {
      step.symbols.push_back(find_symbol(before, factor));
      const bool joins = step.kind == '*' || step.kind == '+';
      if (step.symbols.back() < 0 || step.symbols.size() > kMaxRank || !joins) return false;
    }
  }
  return true;
}

// "s +1 /2" is computed from the symbol s, which is among those before it.
void read_steps(SymbolInfo& symbol, const std::vector<SymbolInfo>& before) {
  constexpr size_t kMostSteps = 1024;
  std::string_view rest = symbol.name;
  size_t end = rest.find(' ');
  if (end == std::string_view::npos) return;
  symbol.base = find_symbol(before, rest.substr(0, end));
  bool fits = symbol.base >= 0;
  while (fits && end < rest.size()) {
    rest.remove_prefix(end + 1);
    end = std::min(rest.find(' '), rest.size());
    SymbolInfo::Step step{};
    fits = symbol.steps.size() < kMostSteps && read_step(rest.substr(0, end), before, step);
    symbol.steps.push_back(std::move(step));
  }
  if (!fits) symbol.steps.clear(), symbol.base = -2;
}

class MethodReader {
 public:
  MethodReader(const ProgramFile& file, const SectionRecord& record)
      : file_(file), in_(record.name, file.bytes(record), record.size, record.offset) {}

  MethodTable read() {
    const uint32_t states = in_.count(2 + 2);
    std::set<std::string> names;
    std::map<std::string_view, const WeightEntry*> initial;
    for (const WeightEntry& w : file_.weights()) {
      if (w.name.starts_with(kInitial)) {
        initial.emplace(std::string_view(w.name).substr(kInitial.size()), &w);
      }
    }
    for (uint32_t i = 0; i < states; ++i) {
      StateInfo state;
      state.name = in_.name("a state");
      if (!names.insert(state.name).second) in_.fail("the state " + state.name + " is repeated");
      read_type(state.dtype, state.shape, {});
      state.bytes = bytes_of(state.name, state.dtype, state.shape, {});
      const uint8_t kind = in_.u8();
      if (kind > 1) in_.fail("unknown kind of state " + std::to_string(kind));
      state.is_cache = kind == 1;
      if (state.is_cache && (!can_be_cache(state) || initial.count(state.name)))
        in_.fail(state.name + " cannot be a cache");
      const auto found = initial.find(state.name);
      if (found != initial.end()) {
        const WeightEntry& w = *found->second;
        if (w.is_matrix() || w.shape != state.shape || w.dtype() != state.dtype)
          in_.fail(w.name + " is not of its state's type");
        state.initial = w.codes;
      }
      table_.states.push_back(std::move(state));
    }
    const uint32_t methods = in_.count(2 + 8 + 5 * 4);
    if (methods > kMaxMethods) in_.fail("there are too many methods");
    names.clear();
    for (uint32_t i = 0; i < methods; ++i) {
      Method method = read_method();
      if (!names.insert(method.name).second) in_.fail("the method " + method.name + " is repeated");
      table_.methods.push_back(std::move(method));
    }
    in_.expect_end();
    return std::move(table_);
  }

 private:
  Method read_method() {
    Method m;
    m.name = in_.name("a method");
    m.arena_size = in_.u64();
    if (m.arena_size > kMaxBytes) in_.fail("the arena of " + m.name + " is absurdly large");
    const uint32_t symbols = in_.count(2 + 8);
    if (symbols > kMaxSymbols) in_.fail(m.name + " has too many symbols");
    std::set<std::string> names;
    for (uint32_t i = 0; i < symbols; ++i) {
      SymbolInfo symbol{in_.name("a symbol"), in_.i64()};
      if (!names.insert(symbol.name).second) in_.fail("the symbol " + symbol.name + " is repeated");
      if (symbol.maximum < 1 || symbol.maximum > kMaxDim)
        in_.fail("the symbol " + symbol.name + " has a bad bound");
      read_steps(symbol, m.symbols);
      if (symbol.base < -1) in_.fail("the symbol " + symbol.name + " cannot be computed");
      m.symbols.push_back(std::move(symbol));
    }
    const uint32_t values = in_.count(2 + 1 + 1 + 8 + 2);  // a name has a byte at least
    m.values.reserve(values);
    for (uint32_t i = 0; i < values; ++i) m.values.push_back(read_value(m));
    m.inputs = read_value_list(m);
    m.outputs = read_value_list(m);
    check_inputs(m);
    const uint32_t nodes = in_.count(kSmallestNode);
    m.nodes.reserve(nodes);
    ArenaContents arena;
    for (uint32_t i = 0; i < nodes; ++i) m.nodes.push_back(read_node(m, arena));
    find_deciders(m);
    for (const uint32_t id : m.outputs) {
      if (m.values[id].storage != Storage::arena || !arena.holds(m.values[id])) {
        in_.fail("the output " + m.values[id].name + " of " + m.name + " is never made");
      }
    }
    return m;
  }

  // Sizes that nodes find out: each by one node, and nothing of that size is made before it.
  void find_deciders(Method& m) {
    const auto symbol_of = [&](int64_t dim) -> SymbolInfo& {
      return m.symbols[static_cast<size_t>(-1 - dim)];
    };
    for (size_t n = 0; n < m.nodes.size(); ++n) {
      if (!m.nodes[n].op->decides_size) continue;
      const std::vector<int64_t>& shape = m.values[m.nodes[n].output].shape;
      const bool fits = shape.size() == 1 && shape[0] < 0 && symbol_of(shape[0]).base < 0 &&
                        symbol_of(shape[0]).decided_by < 0;
      if (!fits) in_.fail(std::string(m.nodes[n].op->name) + " must decide one size of its own");
      symbol_of(shape[0]).decided_by = static_cast<int64_t>(n);
    }
    const auto require_known = [&](uint32_t id, int64_t node) {
      const auto later = [&](int64_t s) {
        return m.symbols[static_cast<size_t>(s)].decided_by > node;
      };
      for (const int64_t dim : m.values[id].shape) {
        if (dim < 0 && symbol_of(dim).any_base(-1 - dim, later))
          in_.fail("the size of " + m.values[id].name + " is not known where it is needed");
      }
    };
    for (const uint32_t id : m.inputs) require_known(id, -1);
    for (size_t n = 0; n < m.nodes.size(); ++n)
      require_known(m.nodes[n].output, static_cast<int64_t>(n));
  }

  static bool can_be_cache(const StateInfo& state) {
    constexpr int64_t kMostRows = 1 << 30;  // so that numbers of rows are int32
    const bool type =
        state.dtype == DType::f32 || state.dtype == DType::f16 || state.dtype == DType::u8;
    return type && state.shape.size() == 3 && state.shape[1] <= kMostRows;
  }

  void read_type(DType& dtype, std::vector<int64_t>& shape,
                 const std::vector<SymbolInfo>& symbols) {
    const uint8_t code = in_.u8();
    if (code >= kDTypeCount) in_.fail("unknown dtype " + std::to_string(code));
    dtype = static_cast<DType>(code);
    const uint8_t rank = in_.u8();
    if (rank > kMaxRank) in_.fail("a rank of " + std::to_string(rank) + " is too large");
    for (uint8_t i = 0; i < rank; ++i) {
      const int64_t dim = in_.i64();
      const bool symbol = dim < 0 && dim >= -static_cast<int64_t>(symbols.size());
      if (!symbol && (dim < 1 || dim > kMaxDim)) in_.fail("bad dimension " + std::to_string(dim));
      shape.push_back(dim);
    }
  }

  uint64_t bytes_of(const std::string& name, DType dtype, std::vector<int64_t> shape,
                    const std::vector<SymbolInfo>& symbols) {
    for (int64_t& dim : shape) {
      if (dim < 0) dim = symbols[static_cast<size_t>(-1 - dim)].maximum;
    }
    const auto bytes = tensor_bytes(dtype, shape);
    if (!bytes) in_.fail(name + " is absurdly large");
    return *bytes;
  }

  ValueInfo read_value(const Method& m) {
    ValueInfo v;
    v.name = in_.name("a value");
    const uint8_t storage = in_.u8();
    if (storage > 3) in_.fail(v.name + " has the unknown storage " + std::to_string(storage));
    v.storage = static_cast<Storage>(storage);
    v.location = in_.u64();
    read_type(v.dtype, v.shape, m.symbols);
    v.max_bytes = bytes_of(v.name, v.dtype, v.shape, m.symbols);
    switch (v.storage) {
      case Storage::input:
        break;  // checked against the list of inputs
      case Storage::arena:
        if (v.location % kArenaAlignment != 0 || v.location > m.arena_size ||
            v.max_bytes > m.arena_size - v.location) {
          in_.fail(v.name + " lies outside the arena");
        }
        break;
      case Storage::weight: {
        if (v.location >= file_.weights().size())
          in_.fail(v.name + " names a weight that is not there");
        const WeightEntry& w = file_.weights()[v.location];
        if (w.shape != v.shape || w.dtype() != v.dtype)
          in_.fail(v.name + " is not of its weight's type");
        break;
      }
      case Storage::state: {
        if (v.location >= table_.states.size())
          in_.fail(v.name + " names a state that is not there");
        const StateInfo& s = table_.states[v.location];
        if (s.shape != v.shape || s.dtype != v.dtype)
          in_.fail(v.name + " is not of its state's type");
        break;
      }
    }
    return v;
  }

  uint32_t read_value_id(const Method& m) {
    const uint32_t id = in_.u32();
    if (id >= m.values.size())
      in_.fail("there is no value " + std::to_string(id) + " in " + m.name);
    return id;
  }

  std::vector<uint32_t> read_value_list(const Method& m) {
    const uint32_t count = in_.count(4);
    std::vector<uint32_t> ids;
    std::set<std::string> names;  // callers choose inputs and outputs by name
    for (uint32_t i = 0; i < count; ++i) {
      ids.push_back(read_value_id(m));
      const std::string& name = m.values[ids.back()].name;
      if (!names.insert(name).second) in_.fail(m.name + " has two inputs or outputs named " + name);
    }
    return ids;
  }

  void check_inputs(const Method& m) {
    size_t stored_as_input = 0;
    for (const ValueInfo& v : m.values) stored_as_input += v.storage == Storage::input;
    if (stored_as_input != m.inputs.size())
      in_.fail("the inputs of " + m.name + " do not match its values");
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      const ValueInfo& v = m.values[m.inputs[i]];
      if (v.storage != Storage::input || v.location != i)
        in_.fail(v.name + " is not an input of " + m.name);
    }
  }

  NodeInfo read_node(const Method& m, ArenaContents& arena) {
    NodeInfo node;
    const std::string op = in_.text();
    node.op = find_schema(op);
    if (!node.op) in_.fail_as_unknown("the op " + op + " is not known");
    const uint8_t inputs = in_.u8();
    node.inputs.reserve(inputs);
    if (inputs < node.op->min_inputs || inputs > node.op->max_inputs)
      in_.fail(op + " has a wrong number of inputs");
    for (uint8_t i = 0; i < inputs; ++i) {
      const uint32_t id = in_.u32();
      if (id == kAbsent) {
        if (i < node.op->min_inputs) in_.fail(op + " lacks a required input");
      } else {
        if (id >= m.values.size()) in_.fail(op + " reads a value that is not there");
        if (m.values[id].storage == Storage::arena && !arena.holds(m.values[id])) {
          in_.fail(op + " reads " + m.values[id].name + " before it is made");
        }
        if (is_cache(m.values[id]) && !node.op->uses_caches) {
          in_.fail(op + " cannot read the cache " + m.values[id].name);
        }
      }
      node.inputs.push_back(id);
    }
    if (in_.u8() != 1) in_.fail(op + " must have one output");
    const uint32_t out = read_value_id(m);
    const ValueInfo& result = m.values[out];
    if (node.op->writes_state) {
      const uint32_t target = node.inputs[0];
      if (result.storage != Storage::state || m.values[target].storage != Storage::state ||
          m.values[target].location != result.location) {
        in_.fail(op + " must write the state it reads");
      }
    } else {
      if (result.storage != Storage::arena) in_.fail(op + " may only write to the arena");
      for (const uint32_t id : node.inputs) {
        if (id != kAbsent && overlap(m.values[id], result))
          in_.fail(op + " would overwrite its own input");
      }
    }
    node.output = out;
    if (result.storage == Storage::arena) arena.write(result);
    const uint8_t attributes = in_.u8();
    for (uint8_t i = 0; i < attributes; ++i) {
      std::string name = in_.text();
      const auto& known = node.op->attributes;
      if (std::none_of(std::begin(known), std::end(known),
                       [&](const char* k) { return k && name == k; })) {
        in_.fail_as_unknown(op + " has the unknown attribute " + name);
      }
      if (!node.attributes.add(std::move(name), read_attribute()))
        in_.fail(op + " repeats an attribute");
    }
    return node;
  }

  bool is_cache(const ValueInfo& v) const {
    return v.storage == Storage::state && table_.states[v.location].is_cache;
  }

  static bool overlap(const ValueInfo& a, const ValueInfo& b) {
    return a.storage == Storage::arena && b.storage == Storage::arena &&
           a.location < b.location + b.max_bytes && b.location < a.location + a.max_bytes;
  }

  Attribute read_attribute() {
    switch (in_.u8()) {
      case 0:
        return in_.i64();
      case 1: {
        const double number = in_.f64();
        if (!std::isfinite(number)) in_.fail("a number is not finite");
        return number;
      }
      case 2:
        return in_.text();
      case 3: {
        const uint32_t count = in_.count(8);
        std::vector<int64_t> items;
        for (uint32_t i = 0; i < count; ++i) items.push_back(in_.i64());
        return items;
      }
      default:
        in_.fail("unknown kind of attribute");
    }
  }

  const ProgramFile& file_;
  Cursor in_;
  MethodTable table_;
};

}  // namespace

bool compute_sizes(const std::vector<SymbolInfo>& symbols, std::vector<int64_t>& sizes) {
  for (size_t i = 0; i < symbols.size(); ++i) {
    const SymbolInfo& symbol = symbols[i];
    if (symbol.base < 0) continue;
    int64_t size = sizes[static_cast<size_t>(symbol.base)];
    for (const auto& [kind, number, others] : symbol.steps) {
      int64_t operand = number;
      for (const int64_t other : others) {
        const int64_t factor = sizes[static_cast<size_t>(other)];
        if (factor > 0 && operand > kMaxDim / factor) return false;
        operand *= factor;
      }
      if (kind == '*' && operand > 0 && std::abs(size) > kMaxDim / operand) return false;
      if (kind == '*') size *= operand;
      if (kind == '+') size += operand;
      if (kind == '-') size -= operand;
      if (kind == '/') size = size / operand - (size % operand < 0);
      if (std::abs(size) > kMaxDim) return false;
    }
    const bool may_be_empty = symbol.any_base(static_cast<int64_t>(i), [&](int64_t s) {
      return symbols[static_cast<size_t>(s)].decided_by >= 0;
    });
    if (size < (may_be_empty ? 0 : 1) || size > symbol.maximum) return false;
    sizes[i] = size;
  }
  return true;
}

MethodTable read_methods(const ProgramFile& file) {
  return MethodReader(file, file.section(SectionKind::methods)).read();
}

}  // namespace satchel
