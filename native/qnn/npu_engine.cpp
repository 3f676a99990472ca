#include "npu_engine.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "../llm/errors.h"
#include "../runtime/instance.h"

#ifdef SATCHEL_QNN
#include "files.h"
#include "onnxruntime.h"
#endif

namespace satchel::llm {

#ifdef SATCHEL_QNN

namespace {

using namespace qnn;

constexpr const char* kStepMethod = "kv_forward";
constexpr const char* kTreeMethod = "lookahead_forward";

#ifdef __x86_64__
constexpr bool kIsEmulated = true;  // the libraries for this processor have no other
#else
constexpr bool kIsEmulated = false;
#endif

using Buffers = std::map<std::string, std::unique_ptr<Buffer>, std::less<>>;

// A method with its graphs, and memory for all that goes in and out but the caches.
struct LoadedMethod {
  const CompiledMethod* about;
  size_t before;  // the number of the CPU's method
  std::vector<std::unique_ptr<Graph>> graphs;
  Buffers buffers;
};

class NpuEngine final : public Engine {
 public:
  NpuEngine(Instance& instance, const std::string& path, const std::string& target);

  std::string kernels() const override {
    return "qnn " + (kIsEmulated ? "emulator" : manifest_.target.substr(sizeof "qnn:" - 1));
  }
  int threads() const override { return 1; }
  bool is_emulated() const override { return kIsEmulated; }

  int32_t open_sequence() override;
  void close_sequence(int32_t sequence) override;
  void truncate(int32_t, size_t) override {}  // masks hide what is not needed

  size_t most_guesses(size_t block) const override;
  std::string other_bits_in_blocks() const override {
    return most_guesses(2) > 1
               ? ""
               : "the NPU may give a token other bits alone than in a block of another method";
  }
  void run(const TokenStep& step, std::vector<float>& logits) override;

 private:
  LoadedMethod& method_for(const TokenStep& step);
  void check(const TokenStep& step, const CompiledMethod& method) const;
  void run_before(LoadedMethod& method, const TokenStep& step);
  void write_masks(LoadedMethod& method, const TokenStep& step);
  void run_graphs(LoadedMethod& method, Buffers& caches);
  void write_caches(LoadedMethod& method, Buffers& caches, const TokenStep& step);

  Instance& instance_;
  Manifest manifest_;
  OnnxRuntime runtime_;
  std::map<std::string, LoadedMethod, std::less<>> methods_;
  std::map<int32_t, Buffers> sequences_;
  std::mutex mutex_;
  int32_t opened_ = 0;
};

size_t number_of(const Program& program, const std::string& name) {
  const auto& methods = program.methods();
  for (size_t i = 0; i < methods.size(); ++i) {
    if (methods[i].name == name) return i;
  }
  throw FormatError("methods", 0, "the program lacks " + name, "Export the file again.");
}

NpuEngine::NpuEngine(Instance& instance, const std::string& path, const std::string& target)
    : instance_(instance),
      manifest_(read_manifest(payload(instance.program().file(), target, "manifest.json"))) {
  if (manifest_.target != target)
    throw FormatError("weights", 0, path + " has a manifest of another target",
                      "Export the file again.");
  const Program& program = instance.program();
  const PayloadFolder files(program.file(), manifest_, kIsEmulated);
  const bool shares = manifest_.shares_weights && !kIsEmulated;
  for (const CompiledMethod& about : manifest_.methods) {
    LoadedMethod method{&about, number_of(program, about.before), {}, {}};
    for (const Shard& shard : about.shards) {
      method.graphs.push_back(runtime_.load(files.path(shard.model), manifest_.provider, shares));
      method.graphs.back()->check(shard);
      for (const auto* side : {&shard.inputs, &shard.outputs}) {
        for (const CodedTensor& one : *side) {
          const bool is_cache = std::any_of(about.caches.begin(), about.caches.end(),
                                            [&](const Cache& c) { return c.name == one.name; });
          if (!is_cache && !method.buffers.contains(one.name))
            method.buffers.emplace(one.name, runtime_.make_buffer(one));
        }
      }
    }
    methods_.emplace(about.name, std::move(method));
  }
  if (!methods_.contains(kStepMethod) && !methods_.contains(kTreeMethod))
    throw FormatError("weights", 0, "the NPU's manifest has no method for single tokens",
                      "Export the file again.");
}

int32_t NpuEngine::open_sequence() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Buffers caches;
  for (const CompiledMethod& method : manifest_.methods) {
    for (const Cache& cache : method.caches) {
      const CodedTensor& held = *method.find(cache.name);
      if (caches.contains(cache.name)) continue;
      auto buffer = runtime_.make_buffer(held);
      held.fill(held.seen_code(), buffer->data(), held.numbers());
      caches.emplace(cache.name, std::move(buffer));
    }
  }
  sequences_.emplace(++opened_, std::move(caches));
  return opened_;
}

void NpuEngine::close_sequence(int32_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sequences_.erase(sequence);
}

size_t NpuEngine::most_guesses(size_t block) const {
  if (const CompiledMethod* trees = manifest_.find(kTreeMethod))
    return static_cast<size_t>(trees->tokens);
  // Elsewhere single tokens are another graph's. Whether it has the same bits was tried on the
  // emulator when it was compiled, and is not known of a chip.
  return manifest_.same_bits && kIsEmulated ? block : 1;
}

// Where there is a method for trees, it also does single tokens: both are then one computation.
LoadedMethod& NpuEngine::method_for(const TokenStep& step) {
  const std::string& name = instance_.program().methods()[step.method].name;
  if (const auto trees = methods_.find(kTreeMethod);
      trees != methods_.end() && (step.guesses || name == kStepMethod))
    return trees->second;
  const auto found = methods_.find(name);
  if (found == methods_.end())
    throw ExecutionError("the NPU's manifest lacks the method " + name + ", which the program has");
  return found->second;
}

void NpuEngine::check(const TokenStep& step, const CompiledMethod& method) const {
  if (step.tokens.empty() || static_cast<int64_t>(step.tokens.size()) > method.tokens)
    throw ExecutionError(method.name + " takes 1 to " + std::to_string(method.tokens) +
                         " tokens, not " + std::to_string(step.tokens.size()));
  if (static_cast<int64_t>(step.position + step.tokens.size()) > method.context)
    throw ExecutionError("the tokens do not fit in a context of " + std::to_string(method.context));
}

void NpuEngine::run_before(LoadedMethod& method, const TokenStep& step) {
  const auto count = static_cast<size_t>(method.about->tokens);
  std::vector<int32_t> tokens(count), positions(count);  // what follows the tokens is never seen
  std::copy(step.tokens.begin(), step.tokens.end(), tokens.begin());
  for (size_t i = 0; i < count; ++i) positions[i] = static_cast<int32_t>(step.position + i);
  const Method& before = instance_.program().methods()[method.before];
  std::vector<ArrayView> inputs;
  for (const uint32_t id : before.inputs) {
    const std::string& name = before.values[id].name;
    if (name != "tokens" && name != "position")
      throw ExecutionError("the method " + before.name + " takes the input '" + name +
                           "', which is not known here");
    const std::vector<int32_t>& column = name == "tokens" ? tokens : positions;
    inputs.push_back({DType::i32, {static_cast<int64_t>(count)}, column.data()});
  }
  const std::lock_guard<std::recursive_mutex> lock(instance_.mutex());
  const std::vector<ArrayView> outputs = instance_.run(method.before, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const CodedTensor* tensor = method.about->find(before.values[before.outputs[i]].name);
    if (tensor == nullptr) continue;
    const auto buffer = method.buffers.find(tensor->name);
    size_t numbers = 1;
    for (const int64_t dim : outputs[i].shape) numbers *= static_cast<size_t>(dim);
    if (buffer == method.buffers.end() || outputs[i].dtype != DType::f32 ||
        numbers != tensor->numbers())
      throw ExecutionError(before.name + " does not make " + tensor->name + " as the NPU takes it");
    tensor->quantize(static_cast<const float*>(outputs[i].data), numbers, buffer->second->data());
  }
}

void NpuEngine::write_masks(LoadedMethod& method, const TokenStep& step) {
  const int64_t context = method.about->context, tokens = method.about->tokens;
  const auto position = static_cast<int64_t>(step.position);
  for (const Mask& mask : method.about->masks) {
    const CodedTensor& tensor = *method.about->find(mask.name);
    uint8_t* codes = method.buffers.find(mask.name)->second->data();
    tensor.fill(tensor.hidden_code(), codes, tensor.numbers());
    const auto show = [&](int64_t token, int64_t from, int64_t to) {
      if (from >= to) return;
      const auto first = static_cast<size_t>(token * (context + tokens) + from);
      tensor.fill(tensor.seen_code(), codes + first * tensor.code_bytes(),
                  static_cast<size_t>(to - from));
    };
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t oldest =
          mask.window == 0 ? 0 : std::max<int64_t>(0, position + i - mask.window + 1);
      show(i, oldest, position);  // slots of the cache, then those of the call
      show(i, context + std::max<int64_t>(0, oldest - position), context + i + 1);
    }
  }
}

void NpuEngine::run_graphs(LoadedMethod& method, Buffers& caches) {
  const auto value_of = [&](const CodedTensor& one) {
    const auto cache = caches.find(one.name);
    return (cache != caches.end() ? cache : method.buffers.find(one.name))->second->value();
  };
  for (size_t i = 0; i < method.graphs.size(); ++i) {
    const Shard& shard = method.about->shards[i];
    std::vector<void*> inputs, outputs;
    for (const CodedTensor& one : shard.inputs) inputs.push_back(value_of(one));
    for (const CodedTensor& one : shard.outputs) outputs.push_back(value_of(one));
    method.graphs[i]->run(shard, inputs, std::move(outputs));
  }
}

// The new tokens' slots, and nothing else: the next call's mask uncovers them (the smart mask).
void NpuEngine::write_caches(LoadedMethod& method, Buffers& caches, const TokenStep& step) {
  for (const Cache& cache : method.about->caches) {
    const CodedTensor& held = *method.about->find(cache.name);
    size_t outer = 1, inner = held.code_bytes();
    for (size_t i = 0; i < held.shape.size(); ++i) {
      if (i != cache.axis) (i < cache.axis ? outer : inner) *= static_cast<size_t>(held.shape[i]);
    }
    const auto slots = static_cast<size_t>(method.about->context);
    const auto fresh = static_cast<size_t>(method.about->tokens);
    uint8_t* to = caches.find(cache.name)->second->data() + step.position * inner;
    const uint8_t* from = method.buffers.find(cache.new_slots)->second->data();
    for (size_t i = 0; i < outer; ++i)
      std::memcpy(to + i * slots * inner, from + i * fresh * inner, step.tokens.size() * inner);
  }
}

void NpuEngine::run(const TokenStep& step, std::vector<float>& logits) {
  const std::lock_guard<std::mutex> lock(mutex_);
  LoadedMethod& method = method_for(step);
  check(step, *method.about);
  const auto sequence = sequences_.find(step.sequence);
  if (sequence == sequences_.end()) throw ExecutionError("there is no such conversation");
  run_before(method, step);
  write_masks(method, step);
  run_graphs(method, sequence->second);
  write_caches(method, sequence->second, step);
  const size_t rows = step.tokens.size() - step.first_row;
  size_t columns = 0, column = 0;
  for (const std::string& part : method.about->logits)
    columns += static_cast<size_t>(method.about->find(part)->shape[1]);
  logits.resize(rows * columns);
  for (const std::string& name : method.about->logits) {
    const CodedTensor& part = *method.about->find(name);
    const auto width = static_cast<size_t>(part.shape[1]);
    const uint8_t* codes = method.buffers.find(name)->second->data();
    for (size_t row = 0; row < rows; ++row)
      part.dequantize(codes + (step.first_row + row) * width * part.code_bytes(), width,
                      logits.data() + row * columns + column);
    column += width;
  }
}

}  // namespace

std::unique_ptr<Engine> make_npu_engine(Instance& instance, const std::string& path,
                                        const std::string& target) {
  return std::make_unique<NpuEngine>(instance, path, target);
}

#else

std::unique_ptr<Engine> make_npu_engine(Instance&, const std::string& path,
                                        const std::string& target) {
  throw ConfigError(
      path + " is for " + target + ", and this runner cannot open the libraries of its maker",
      "Use one that is not linked statically (cmake --preset capi), or --target cpu.");
}

#endif

}  // namespace satchel::llm
