#include "instance.h"

#include <cstring>
#include <algorithm>
#include <numeric>
#include <utility>

#include "errors.h"

namespace satchel {

namespace {

// A program that is called again will be called often: its weights are worth a copy. Not at once,
// so that the first answer does not wait for it.
constexpr uint64_t kCallsBeforeSettling = 2;

// Whether a size is found out at the end of a part.
bool decides(const Method& method, const PartInfo& part) {
  return method.nodes[part.last - 1].op->decides_size;
}

// Arena and outputs. States are not counted: a cache fills token by token.
uint64_t memory_of(const Method& method) {
  uint64_t bytes = method.arena_size;
  for (const uint32_t id : method.outputs) {
    bytes = std::min(bytes + method.values[id].max_bytes, uint64_t{1} << 62);  // it cannot overflow
  }
  return bytes;
}

}  // namespace

Program::Program(const std::string& path) : file_(path), table_(read_methods(file_)) {
  // A node that fits at the largest and at the smallest sizes has its shapes in order; sizes in
  // between are checked again when they occur.
  for (const Method& method : table_.methods) {
    try {
      check_nodes(*this, method);
    } catch (const ExecutionError& error) {
      throw FormatError("methods", file_.section(SectionKind::methods).offset,
                        method.name + ": " + error.what());
    }
  }
  file_.require_intact();
}

uint64_t Program::weight_bytes_read(const Method& method) const {
  uint64_t read = 0;
  std::vector<bool> seen(file_.weights().size(), false);
  for (const NodeInfo& node : method.nodes) {
    if (std::strcmp(node.op->name, "embedding") == 0) continue;
    for (const uint32_t id : node.inputs) {
      if (id == kAbsent || method.values[id].storage != Storage::weight) continue;
      const uint64_t number = method.values[id].location;
      const WeightEntry& weight = file_.weights()[number];
      if (!seen[number]) read += weight.codes_size + weight.scales_size;
      seen[number] = true;
    }
  }
  return read;
}

void Program::settle() const {
  std::call_once(settled_, [this] {
    const SectionRecord& weights = file_.section(SectionKind::weights);
    mover_.start(file_.mapped(), weights.offset, weights.size);
  });
}

Instance::Instance(std::shared_ptr<const Program> program, int threads, uint64_t cache_memory,
                   Executors executors)
    : program_(std::move(program)),
      cpu_(std::make_shared<CpuExecutor>(threads)),
      executors_(std::move(executors)) {
  executors_.insert(executors_.begin(), cpu_);
  uint64_t arena = 0;
  for (const Method& method : program_->methods()) {
    require_memory(method.name, memory_of(method));
    arena = std::max(arena, method.arena_size);
    methods_.emplace_back(*program_, method);
  }
  placement_ = place(*program_, methods_, executors_);
  for (const auto& executor : executors_) executor->open(program_, arena);
  const auto make = [this](size_t state, uint64_t bytes) {
    return executors_[placement_.owners[state]]->make_state(state, bytes);
  };
  const std::vector<StateInfo>& infos = program_->states();
  sequences_ =
      std::make_unique<Sequences>(infos, cache_memory ? cache_memory : physical_memory() / 2, make);
  for (size_t i = 0; i < infos.size(); ++i)
    states_.push_back(infos[i].is_cache ? nullptr : make(i, infos[i].bytes));
  reset();
  for (size_t m = 0; m < methods_.size(); ++m) {
    for (size_t id = 0; id < methods_[m].tensors().size(); ++id)
      cpu_->locate(methods_[m].tensor(static_cast<uint32_t>(id)));
    auto& parts = parts_.emplace_back();
    for (const PartInfo& info : placement_.parts[m])
      parts.push_back(executors_[info.executor]->prepare(methods_[m], info));
  }
}

void Instance::reset() {
  for (size_t i = 0; i < states_.size(); ++i) {
    const StateInfo& state = program_->states()[i];
    if (!states_[i]) continue;
    if (state.initial) {
      states_[i]->write(0, state.bytes, state.initial);
    } else if (calls_ > 0) {
      states_[i]->clear();  // at first they are zero already
    }
  }
  sequences_->truncate_first();
}

std::vector<int64_t> Instance::take_inputs(BoundMethod& bound,
                                           const std::vector<ArrayView>& inputs) {
  const Method& method = bound.method();
  if (inputs.size() != method.inputs.size()) {
    throw ExecutionError(method.name + " takes " + std::to_string(method.inputs.size()) +
                         " inputs, not " + std::to_string(inputs.size()));
  }
  std::vector<int64_t> sizes(method.symbols.size(), 0);
  std::vector<std::pair<size_t, int64_t>> computed;  // sizes of inputs that others decide
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueInfo& value = method.values[method.inputs[i]];
    const ArrayView& given = inputs[i];
    bool fits = given.dtype == value.dtype && given.shape.size() == value.shape.size();
    for (size_t d = 0; fits && d < given.shape.size(); ++d) {
      const int64_t want = value.shape[d], have = given.shape[d];
      if (want >= 0) {
        fits = want == have;
      } else if (method.symbols[static_cast<size_t>(-1 - want)].base >= 0) {
        computed.emplace_back(static_cast<size_t>(-1 - want), have);
      } else {
        int64_t& size = sizes[static_cast<size_t>(-1 - want)];
        fits = have >= 1 && have <= method.symbols[static_cast<size_t>(-1 - want)].maximum &&
               (size == 0 || size == have);
        size = have;
      }
    }
    if (reinterpret_cast<uintptr_t>(given.data) % dtype_size(given.dtype) != 0) {
      throw ExecutionError("the input " + value.name + " of " + method.name +
                           " is not aligned in memory");
    }
    if (!fits) {
      throw ExecutionError("the input " + value.name + " of " + method.name +
                           " does not fit: it is " + dtype_name(given.dtype) +
                           shape_text(given.shape.data(), given.shape.size()));
    }
    bound.tensor(method.inputs[i]).data = static_cast<uint8_t*>(const_cast<void*>(given.data));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    // What no input has: at first the most that there can be, if a node will tell.
    const SymbolInfo& symbol = method.symbols[i];
    if (sizes[i] == 0) sizes[i] = symbol.decided_by >= 0 ? symbol.maximum : 1;
  }
  bool fits = compute_sizes(method.symbols, sizes);
  for (const auto& [symbol, have] : computed) fits = fits && sizes[symbol] == have;
  if (!fits) throw ExecutionError(method.name + " cannot be computed for inputs of these sizes");
  return sizes;
}

void Instance::bind_parts(size_t number, size_t first, const std::vector<int64_t>& sizes) {
  BoundMethod& bound = methods_[number];
  const std::vector<PartInfo>& infos = placement_.parts[number];
  size_t last = first;  // one behind the last part whose sizes are known
  while (last < infos.size() && (last == first || !decides(bound.method(), infos[last - 1])))
    ++last;
  if (!bound.bind(sizes, last > 0 ? infos[last - 1].last : 0)) return;
  try {
    for (size_t p = first; p < last; ++p) parts_[number][p]->bind();
  } catch (...) {
    bound.unbind();
    throw;
  }
}

void Instance::bind(size_t number, const std::vector<ArrayView>& inputs) {
  bind_parts(number, 0, take_inputs(methods_.at(number), inputs));
  if (++calls_ == kCallsBeforeSettling) program_->settle();
}

void Instance::bind_decided(size_t number, size_t part) {
  BoundMethod& bound = methods_[number];
  const Method& method = bound.method();
  const uint32_t result = method.nodes[placement_.parts[number][part].last - 1].output;
  std::vector<int64_t> sizes = bound.sizes();
  bound.unbind();  // until all fits: the result has another shape than it was bound to
  sizes[static_cast<size_t>(-1 - method.values[result].shape[0])] = bound.tensor(result).shape[0];
  if (!compute_sizes(method.symbols, sizes))
    throw ExecutionError(method.name + " cannot be computed for as many as were chosen");
  bind_parts(number, part + 1, sizes);
}

std::vector<int32_t> Instance::run_chain(size_t number, Chain chain) {
  const Method& method = methods_.at(number).method();
  const size_t count = chain.tokens.size();
  if (parts_[number].size() != 1 || method.outputs.size() != 1 || chain.runs() == 0) return {};
  if (chain.positions.size() != count || chain.sequences.size() != count ||
      chain.rules.size() != count || chain.random.size() % count != 0)
    throw ExecutionError("a chain needs a position, a sequence and a rule for each token");
  std::vector<int32_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<ArrayView> inputs;
  for (const uint32_t id : method.inputs) {
    const std::string& name = method.values[id].name;
    const std::vector<int32_t>* from = name == "tokens"     ? &chain.tokens
                                       : name == "position" ? &chain.positions
                                       : name == "sequence" ? &chain.sequences
                                       : name == "rows"     ? &rows
                                                            : nullptr;
    if (!from) return {};
    inputs.push_back({DType::i32, {static_cast<int64_t>(count)}, from->data()});
  }
  bind(number, inputs);
  std::vector<int32_t> tokens = parts_[number][0]->run_chain(*sequences_, chain);
  program_->file().require_intact();
  return tokens;
}

std::vector<ArrayView> Instance::run(size_t number, const std::vector<ArrayView>& inputs) {
  BoundMethod& bound = methods_.at(number);
  const Method& method = bound.method();
  const std::vector<PartInfo>& infos = placement_.parts[number];
  bind(number, inputs);
  for (size_t p = 0; p < infos.size(); ++p) {
    Part& part = *parts_[number][p];
    for (const uint32_t id : infos[p].takes) part.take(id, bound.tensor(id).data);
    part.run(*sequences_);
    for (const uint32_t id : infos[p].gives) part.give(id, bound.tensor(id).data);
    if (decides(method, infos[p])) bind_decided(number, p);
  }
  program_->file().require_intact();
  std::vector<ArrayView> outputs;
  for (const uint32_t id : method.outputs) {
    const Tensor& t = bound.tensor(id);
    outputs.push_back({t.dtype, {t.shape, t.shape + t.rank}, t.data});
  }
  return outputs;
}

}  // namespace satchel
