#include "cpu_executor.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "errors.h"
#include "last_rows.h"
#include "likeliest.h"

namespace satchel {

namespace {

constexpr int kMaxThreads = 1024;

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

}  // namespace

void require_memory(const std::string& what, uint64_t bytes) {
  const uint64_t have = physical_memory();
  if (bytes > have) {
    throw ExecutionError(what + " needs " + std::to_string(bytes) +
                         " bytes of memory, and this machine has " + std::to_string(have));
  }
}

// Calls of the CPU. The host's own work on the method's tensors; those of an executor beside it
// have tensors of their own, which lie in its own memory.
class CpuPart : public Part {
 public:
  CpuPart(CpuExecutor& executor, BoundMethod& method, const PartInfo& info)
      : executor_(executor), method_(method), info_(info) {
    if (executor_.beside_) {
      own_ = method.tensors();
      for (Tensor& t : own_) {
        if (t.source) t.source = own(t.source);
        executor_.locate(t);
      }
    }
    if (executor_.beside_ || info.first > 0 || info.last < method.calls().size()) {
      part_.assign(method.calls().begin() + static_cast<ptrdiff_t>(info.first),
                   method.calls().begin() + static_cast<ptrdiff_t>(info.last));
      if (executor_.beside_) {
        for (NodeCall& call : part_) {
          for (Tensor*& input : call.inputs) {
            if (input) input = own(input);
          }
          call.output = own(call.output);
        }
      }
    }
    for (NodeCall& call : calls()) call.cpu = find_cpu_op(*call.info->op);
    last_rows_.emplace(calls());
  }

  void bind() override {
    for (size_t i = 0; i < own_.size(); ++i)
      std::copy_n(method_.tensors()[i].shape, kMaxRank, own_[i].shape);
    const int threads = executor_.threads();
    scratch_ = 64;
    for (size_t i = 0; i < calls().size(); ++i) {
      NodeCall& call = calls()[i];
      call.params = method_.calls()[info_.first + i].params;
      const bool needs = call.cpu->scratch && call.output->elements() > 0;
      call.scratch = needs ? call.cpu->scratch(call, threads) : 0;
      scratch_ = std::max(scratch_, call.scratch);
    }
    join_calls(calls());
    last_rows_->forget();
  }

  void take(uint32_t value, const uint8_t* from) override {
    Tensor& t = tensor(value);
    if (t.info->storage == Storage::input) {
      std::vector<uint8_t>& copy = inputs_[value];
      copy.resize(t.info->max_bytes);
      t.data = copy.data();
    }
    std::memcpy(t.data, from, bytes_of(t));
  }

  void give(uint32_t value, uint8_t* to) override {
    const Tensor& t = tensor(value);
    std::memcpy(to, t.data, bytes_of(t));
  }

  void run(Sequences& sequences) override {
    const int threads = executor_.threads();
    const int64_t first = last_rows_->first_wanted();
    const size_t shortened = first > 0 ? last_rows_->bind(calls(), first, threads) : 0;
    const std::vector<NodeCall>& chosen = first > 0 ? last_rows_->calls() : calls();
    executor_.need_scratch(method_.method().name, std::max(scratch_, shortened));
    const Workspace work{executor_.kernels_, executor_.pool(), executor_.scratch_.data(),
                         sequences};
    std::optional<Profile>& profile = executor_.profile_;
    for (size_t i = 0; i < chosen.size(); i += 1 + chosen[i].joined) {
      const NodeCall& call = chosen[i];
      if (call.output->elements() == 0) continue;  // nothing was chosen
      const NodeGuard guard(executor_.guarded_, call);
      const Profile::Clock::time_point started =
          profile ? Profile::Clock::now() : Profile::Clock::time_point{};
      call.cpu->run(call, work);
      if (profile) profile->add(call, Profile::Clock::now() - started);
    }
  }

  // The likeliest tokens only: the host's sampler is as near, and has the last bit of chances.
  std::vector<int32_t> run_chain(Sequences& sequences, Chain& chain) override {
    const Tensor& logits = method_.tensor(method_.method().outputs[0]);
    const size_t count = chain.tokens.size();
    const auto vocabulary = static_cast<size_t>(logits.last());
    const bool needs_more = std::any_of(
        chain.rules.begin(), chain.rules.end(),
        [](const TokenRule& rule) { return rule.temperature > 0 || rule.changes_logits(); });
    if (executor_.beside_ || needs_more || logits.dtype != DType::f32 ||
        static_cast<size_t>(logits.elements()) != count * vocabulary)
      return {};
    std::vector<int32_t> chosen;
    for (size_t done = 0; done < chain.runs(); ++done) {
      try {
        run(sequences);
      } catch (const ExecutionError&) {
        if (done == 0) throw;
        break;  // the end of the context or of the caches' memory: the run that begins here tells
      }
      bool meaningful = true;
      for (size_t i = 0; i < count; ++i) {
        chain.tokens[i] =
            static_cast<int32_t>(likeliest({logits.f32() + i * vocabulary, vocabulary}));
        ++chain.positions[i];
        meaningful &= chain.tokens[i] >= 0;
      }
      chosen.insert(chosen.end(), chain.tokens.begin(), chain.tokens.end());
      if (!meaningful) break;
    }
    return chosen;
  }

 private:
  std::vector<NodeCall>& calls() { return part_.empty() ? method_.calls() : part_; }
  Tensor& tensor(uint32_t id) { return own_.empty() ? method_.tensor(id) : own_[id]; }
  Tensor* own(const Tensor* of) { return own_.data() + (of - method_.tensors().data()); }

  static size_t bytes_of(const Tensor& t) {
    return static_cast<size_t>(t.elements()) * dtype_size(t.dtype);
  }

  CpuExecutor& executor_;
  BoundMethod& method_;
  PartInfo info_;
  std::vector<Tensor> own_;     // empty: the method's
  std::vector<NodeCall> part_;  // empty: all of the method's calls
  std::map<uint32_t, std::vector<uint8_t>> inputs_;
  std::optional<LastRows> last_rows_;
  size_t scratch_ = 0;
};

CpuExecutor::CpuExecutor(int threads, std::optional<Beside> beside)
    : beside_(std::move(beside)),
      kernels_(chosen_kernels()),
      pool_(ThreadPool::shared(checked_threads(threads))) {
  if (beside_) name_ = beside_->name;
}

std::string CpuExecutor::refuses(const NodeCall& call) const {
  const std::string op = call.info->op->name;
  if (!find_cpu_op(*call.info->op)) return "the CPU has no op " + op;
  if (beside_ && !beside_->ops.count(op)) return name_ + " has no op " + op;
  return {};
}

void CpuExecutor::open(std::shared_ptr<const Program> program, uint64_t arena_bytes) {
  if (program_) throw ExecutionError("the executor " + name_ + " serves another instance already");
  program_ = std::move(program);
  arena_ = ZeroedPages(std::max<uint64_t>(arena_bytes, 64));
  states_.assign(program_->states().size(), nullptr);
  const SectionRecord& weights = program_->file().section(SectionKind::weights);
  guarded_ = {{}, {arena_.data(), arena_.size()}, {program_->file().bytes(weights), weights.size}};
}

std::unique_ptr<StateMemory> CpuExecutor::make_state(size_t state, uint64_t bytes) {
  auto memory = std::make_unique<HostMemory>(bytes);
  states_[state] = memory->data();
  if (!program_->states()[state].is_cache) guarded_.push_back({memory->data(), memory->size()});
  return memory;
}

void CpuExecutor::locate(Tensor& t) const {
  const ValueInfo& value = *t.info;
  if (value.storage == Storage::state) t.data = states_[value.location];
  if (value.storage == Storage::arena) t.data = arena_.data() + value.location;
}

std::unique_ptr<Part> CpuExecutor::prepare(BoundMethod& method, const PartInfo& info) {
  return std::make_unique<CpuPart>(*this, method, info);
}

ThreadPool& CpuExecutor::pool() {
  if (!pool_->is_ours()) pool_ = ThreadPool::shared(threads());
  return *pool_;
}

void CpuExecutor::need_scratch(const std::string& method, size_t bytes) {
  if (bytes <= scratch_.size()) return;
  require_memory(method, bytes);
  scratch_ = ZeroedPages(bytes);
  guarded_[0] = {scratch_.data(), scratch_.size()};
}

void CpuExecutor::copy(const uint8_t* from, size_t bytes, uint8_t* to) {
  constexpr int64_t kPiece = 32768;
  const auto size = static_cast<int64_t>(bytes);
  pool().parallel_for((size + kPiece - 1) / kPiece, 1, [&](int64_t begin, int64_t end, int) {
    const int64_t first = begin * kPiece, last = std::min(end * kPiece, size);
    std::memcpy(to + first, from + first, static_cast<size_t>(last - first));
  });
}

}  // namespace satchel
