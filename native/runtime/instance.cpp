#include "instance.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "errors.h"

namespace satchel {

namespace {

constexpr int kMaxThreads = 1024;
// A program that is called again will be called often: its weights are worth a copy. Not at once,
// so that the first answer does not wait for it.
constexpr uint64_t kCallsBeforeSettling = 2;

const KernelTable& chosen_kernels() {
  try {
    return selected_kernels();
  } catch (const std::invalid_argument& error) {
    throw ExecutionError(std::string(error.what()) +
                         ": SATCHEL_ISA must be one of them, or not set");
  }
}

int checked_threads(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    throw ExecutionError("there may be 1 to " + std::to_string(kMaxThreads) + " threads, not " +
                         std::to_string(threads));
  }
  return threads > 0 ? threads : default_threads();
}

// Refuses what would bring the system down when it is written to: pages are given when first
// touched, so asking for them tells nothing. States are not counted: a cache fills token by token.
void require_memory(const std::string& what, uint64_t bytes) {
  const uint64_t have = physical_memory();
  if (bytes > have) {
    throw ExecutionError(what + " needs " + std::to_string(bytes) +
                         " bytes of memory, and this machine has " + std::to_string(have));
  }
}

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
    BoundMethod bound(*this, method, {}, nullptr);
    std::vector<int64_t> largest, smallest;
    for (const SymbolInfo& symbol : method.symbols) {
      largest.push_back(symbol.maximum);
      smallest.push_back(1);
    }
    try {
      bound.bind(largest, 1);
      bound.bind(smallest, 1);
    } catch (const ExecutionError& error) {
      throw FormatError("methods", file_.section(SectionKind::methods).offset,
                        method.name + ": " + error.what());
    }
  }
  file_.require_intact();
}

void Program::settle() const {
  std::call_once(settled_, [this] {
    const SectionRecord& weights = file_.section(SectionKind::weights);
    mover_.start(file_.descriptor(), weights.offset, file_.bytes(weights), weights.size);
  });
}

BoundMethod::BoundMethod(const Program& program, const Method& method,
                         const std::vector<uint8_t*>& states, uint8_t* arena)
    : method_(&method), tensors_(method.values.size()) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const ValueInfo& value = method.values[i];
    Tensor& t = tensors_[i];
    t.info = &value;
    t.dtype = value.dtype;
    t.rank = value.shape.size();
    t.paged = value.storage == Storage::state && program.states()[value.location].is_cache;
    if (value.storage == Storage::weight) {
      t.weight = &program.file().weights()[value.location];
      if (!t.weight->is_matrix()) t.data = const_cast<uint8_t*>(t.weight->codes);
    } else if (value.storage == Storage::state && !states.empty()) {
      t.data = states[value.location];
    } else if (value.storage == Storage::arena && arena) {
      t.data = arena + value.location;
    }
  }
  calls_.reserve(method.nodes.size());
  for (const NodeInfo& node : method.nodes) {
    NodeCall call;
    call.info = &node;
    call.inputs.reserve(node.inputs.size());
    for (const uint32_t id : node.inputs)
      call.inputs.push_back(id == kAbsent ? nullptr : &tensors_[id]);
    call.output = &tensors_[node.output];
    calls_.push_back(std::move(call));
  }
  count_uses();
  last_rows_.emplace(calls_);
}

void BoundMethod::count_uses() {
  // The last value at a place of the arena. A tree, because files choose places, and could choose
  // such as collide in a hash table.
  std::map<uint64_t, Tensor*> written;
  bool known = true;  // who wrote everything that is read
  std::vector<bool> is_result(tensors_.size(), false);
  const auto number = [&](const Tensor* t) { return static_cast<size_t>(t - tensors_.data()); };
  for (const NodeCall& call : calls_) is_result[number(call.output)] = true;
  const auto use = [&](Tensor& t) {
    const bool shares = t.info->storage == Storage::arena && !is_result[number(&t)];
    Tensor* writer = &t;
    if (shares) {
      const auto found = written.find(t.info->location);
      writer = found == written.end() ? nullptr : found->second;
      known = known && writer;
    }
    t.source = writer;
    if (writer) ++writer->uses;
  };
  for (const NodeCall& call : calls_) {
    for (Tensor* input : call.inputs) {
      if (input) use(*input);
    }
    if (call.output->info->storage == Storage::arena)
      written[call.output->info->location] = call.output;
  }
  for (const uint32_t id : method_->outputs) use(tensors_[id]);
  // Something was read that nobody wrote just there: then nothing is known of anybody.
  if (!known)
    for (Tensor& t : tensors_) t.uses += 2;
}

size_t BoundMethod::bind(const std::vector<int64_t>& sizes, int threads) {
  if (sizes == bound_ && scratch_ != 0) return scratch_;
  bound_.clear();  // so that a failure half-way is not taken for done
  for (Tensor& t : tensors_) {
    for (size_t i = 0; i < t.rank; ++i) {
      const int64_t dim = t.info->shape[i];
      t.shape[i] = dim < 0 ? sizes[static_cast<size_t>(-1 - dim)] : dim;
    }
  }
  size_t scratch = 64;
  for (NodeCall& call : calls_) {
    call.scratch = call.info->op->check(call, threads);
    scratch = std::max(scratch, call.scratch);
  }
  join_calls(calls_);
  last_rows_->forget();
  bound_ = sizes;
  scratch_ = scratch;
  return scratch;
}

size_t BoundMethod::choose_rows(int threads) {
  const int64_t first = last_rows_->first_wanted();
  shortened_ = first > 0;
  return shortened_ ? last_rows_->bind(calls_, first, threads) : 0;
}

Instance::Instance(std::shared_ptr<const Program> program, int threads, uint64_t cache_memory)
    : program_(std::move(program)),
      kernels_(chosen_kernels()),
      pool_(checked_threads(threads)),
      sequences_(program_->states(), cache_memory ? cache_memory : physical_memory() / 2) {
  uint64_t arena = 64;
  for (const Method& method : program_->methods()) {
    require_memory(method.name, memory_of(method));
    arena = std::max(arena, method.arena_size);
  }
  arena_ = ZeroedPages(arena);
  std::vector<uint8_t*> states;
  for (const StateInfo& state : program_->states()) {
    states_.emplace_back(state.is_cache ? 0 : state.bytes);
    states.push_back(state.is_cache ? sequences_.cache(states.size()) : states_.back().data());
  }
  reset();
  const SectionRecord& weights = program_->file().section(SectionKind::weights);
  guarded_ = {{}, {arena_.data(), arena_.size()}, {program_->file().bytes(weights), weights.size}};
  for (const ZeroedPages& state : states_) guarded_.push_back({state.data(), state.size()});
  for (const Method& method : program_->methods())
    methods_.emplace_back(*program_, method, states, arena_.data());
}

void Instance::reset() {
  for (size_t i = 0; i < states_.size(); ++i) {
    const StateInfo& state = program_->states()[i];
    if (state.initial) {
      std::memcpy(states_[i].data(), state.initial, state.bytes);
    } else if (calls_ > 0) {
      std::memset(states_[i].data(), 0, states_[i].size());  // at first they are zero already
    }
  }
  sequences_.truncate_first();
}

std::vector<ArrayView> Instance::run(size_t number, const std::vector<ArrayView>& inputs) {
  BoundMethod& bound = methods_.at(number);
  const Method& method = bound.method();
  if (inputs.size() != method.inputs.size()) {
    throw ExecutionError(method.name + " takes " + std::to_string(method.inputs.size()) +
                         " inputs, not " + std::to_string(inputs.size()));
  }
  std::vector<int64_t> sizes(method.symbols.size(), 0);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueInfo& value = method.values[method.inputs[i]];
    const ArrayView& given = inputs[i];
    bool fits = given.dtype == value.dtype && given.shape.size() == value.shape.size();
    for (size_t d = 0; fits && d < given.shape.size(); ++d) {
      const int64_t want = value.shape[d], have = given.shape[d];
      if (want >= 0) {
        fits = want == have;
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
  for (int64_t& size : sizes) size = std::max<int64_t>(size, 1);  // a symbol that no input has
  size_t scratch = bound.bind(sizes, pool_.size());
  scratch = std::max(scratch, bound.choose_rows(pool_.size()));
  if (scratch > scratch_.size()) {
    require_memory(method.name, scratch);
    scratch_ = ZeroedPages(scratch);
    guarded_[0] = {scratch_.data(), scratch_.size()};
  }
  if (++calls_ == kCallsBeforeSettling) program_->settle();
  const Workspace work{kernels_, pool_, scratch_.data(), sequences_};
  const std::vector<NodeCall>& calls = bound.chosen_calls();
  for (size_t i = 0; i < calls.size(); i += 1 + calls[i].joined) {
    const NodeCall& call = calls[i];
    const NodeGuard guard(guarded_, call);
    const Profile::Clock::time_point started =
        profile_ ? Profile::Clock::now() : Profile::Clock::time_point{};
    call.info->op->run(call, work);
    if (profile_) profile_->add(call, Profile::Clock::now() - started);
  }
  program_->file().require_intact();
  std::vector<ArrayView> outputs;
  for (const uint32_t id : method.outputs) {
    const Tensor& t = bound.tensor(id);
    outputs.push_back({t.dtype, {t.shape, t.shape + t.rank}, t.data});
  }
  return outputs;
}

void Instance::copy(const ArrayView& output, size_t bytes, uint8_t* to) {
  constexpr int64_t kPiece = 32768;
  const auto* from = static_cast<const uint8_t*>(output.data);
  const auto size = static_cast<int64_t>(bytes);
  pool_.parallel_for((size + kPiece - 1) / kPiece, 1, [&](int64_t begin, int64_t end, int) {
    const int64_t first = begin * kPiece, last = std::min(end * kPiece, size);
    std::memcpy(to + first, from + first, static_cast<size_t>(last - first));
  });
}

}  // namespace satchel
