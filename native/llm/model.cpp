#include "model.h"

#include <algorithm>

#include "../qnn/npu_engine.h"
#include "../runtime/sha256.h"
#include "errors.h"
#include "gpu.h"

namespace satchel::llm {

namespace {

constexpr const char* kStepMethod = "kv_forward";
constexpr const char* kPrefillMethod = "prefill_forward";

void require_digest(const ProgramFile& file, const SectionRecord& record) {
  Sha256 hash;
  hash.update(file.bytes(record), record.size);
  if (hash.finish() != record.digest)
    throw ChecksumError(record.name, record.offset, "the section's checksum is wrong");
}

void require_target(const std::string& path, const std::string& target,
                    const std::vector<std::string>& known) {
  std::string listed;
  for (const std::string& one : known) listed += (listed.empty() ? "" : ", ") + one;
  if (std::find(known.begin(), known.end(), target) == known.end())
    throw ConfigError(path + " is not for " + target,
                      "It is for " + listed + "; export it with --target " + target + ".");
  if (!target.starts_with("qnn:"))
    throw ConfigError(
        "programs run here on the CPU, GPUs and Qualcomm's NPUs, and not on " + target,
        "Use --target cpu, or Python's satchel.");
}

}  // namespace

int64_t most_tokens(const Method& method) {
  if (method.inputs.empty() || method.values[method.inputs[0]].shape.empty()) return 0;
  const int64_t dim = method.values[method.inputs[0]].shape[0];
  return dim >= 0 ? dim : method.symbols[static_cast<size_t>(-1 - dim)].maximum;
}

Json read_metadata(const ProgramFile& file) {
  const SectionRecord& record = file.section(SectionKind::metadata);
  require_digest(file, record);
  const auto* bytes = reinterpret_cast<const char*>(file.bytes(record));
  Json document = Json::parse({bytes, record.size}, record.name);
  if (document.object() == nullptr)
    throw FormatError(record.name, record.offset, "the metadata are not an object");
  return document;
}

std::unique_ptr<Tokenizer> open_tokenizer(std::shared_ptr<const Program> program) {
  const ProgramFile& file = program->file();
  const SectionRecord* text = file.find_section(SectionKind::text);
  if (text == nullptr) return nullptr;
  require_digest(file, *text);
  return std::make_unique<Tokenizer>(std::span(file.bytes(*text), text->size), text->offset,
                                     std::move(program));
}

std::vector<std::string> targets_of(const Json& metadata) {
  std::vector<std::string> targets;
  if (const JsonList* list = metadata["targets"].list()) {
    for (const Json& one : *list) {
      if (const std::string* name = one.text()) targets.push_back(*name);
    }
  }
  const std::string* only = metadata["target"].text();
  if (targets.empty()) targets.push_back(only == nullptr ? Model::kCpu : *only);
  return targets;
}

std::shared_ptr<Model> Model::open(const std::string& path, int threads, uint64_t cache_memory,
                                   const std::string& target) {
  return std::shared_ptr<Model>(new Model(path, threads, cache_memory, target));
}

Model::Model(const std::string& path, int threads, uint64_t cache_memory, const std::string& target)
    : path_(path), program_(std::make_shared<Program>(path)) {
  metadata_ = read_metadata(program_->file());
  if (target != kCpu && !is_gpu(target)) require_target(path, target, targets_of(metadata_));
  const std::optional<size_t> step = find_method(kStepMethod);
  const auto& states = program_->states();
  const auto cache =
      std::find_if(states.begin(), states.end(), [](const StateInfo& s) { return s.is_cache; });
  if (const std::string* kind = metadata_["kind"].text(); kind != nullptr && *kind == "speech") {
    throw ConfigError(path + " writes down what is said, and is not a language model",
                      "Use it as transcribe FILE AUDIO.");
  }
  if (!step || cache == states.end())
    throw ConfigError(path + " is not a language model",
                      "satchel run --input FILE, or satchel transcribe, run other kinds.");
  context_ = cache->shape[1];
  tokenizer_ = open_tokenizer(program_);
  if (tokenizer_ == nullptr) {
    throw ConfigError(path + " has no compiled tokenizer",
                      "Export the model again; if that says what the native "
                      "tokenizer does not do, "
                      "use Python's satchel.");
  }
  if (const auto prefill = find_method(kPrefillMethod))
    prefill_length_ = std::max<int64_t>(1, most_tokens(program_->methods()[*prefill]));
  if (is_gpu(target)) {
    Gpu gpu = open_gpu(*program_, target, cache_memory);
    instance_ = std::make_unique<Instance>(program_, threads, gpu.cache_memory,
                                           Instance::Executors{std::move(gpu.executor)});
    const std::vector<PartInfo>& parts = instance_->placement().parts[*step];
    gpu.chip.chooses_tokens = parts.size() == 1 && parts[0].executor != 0;
    engine_ = make_engine(*instance_, std::move(gpu.chip));
    return;
  }
  instance_ = std::make_unique<Instance>(program_, threads, cache_memory);
  engine_ = target == kCpu ? make_engine(*instance_) : make_npu_engine(*instance_, path, target);
}

std::optional<size_t> Model::find_method(const std::string& name) const {
  const auto& methods = program_->methods();
  const auto found =
      std::find_if(methods.begin(), methods.end(), [&](const Method& m) { return m.name == name; });
  if (found == methods.end()) return std::nullopt;
  return static_cast<size_t>(found - methods.begin());
}

size_t Model::adapted(const std::string& name, const std::string& adapter) const {
  if (const auto found = find_method(adapter.empty() ? name : name + "@" + adapter)) return *found;
  std::string known;
  for (const Method& method : program_->methods()) {
    if (method.name.starts_with(std::string(kStepMethod) + "@"))
      known += method.name.substr(std::string_view(kStepMethod).size() + 1) + ", ";
  }
  throw ConfigError(path_ + " has no adapter '" + adapter + "'", "It has " + known + "none.");
}

SamplingOptions Model::usual_sampling(bool chats) const {
  SamplingOptions options;
  options.top_k = 40,
  options.top_p = 0.95;  // for those who choose a temperature only
  const Json& generation = metadata_["generation"];
  const bool given = generation.object() != nullptr && !generation.object()->empty();
  if (!given) {
    // Small models go round in circles in a conversation.
    if (chats) options.repetition_penalty = 1.05;
    return options;
  }
  options.repetition_penalty = generation["repetition_penalty"].number(1);
  bool sampled = !generation["temperature"].is_null();
  if (const bool* chosen = generation["do_sample"].boolean()) sampled = *chosen;
  if (!sampled) return options;
  options.temperature = generation["temperature"].number(1);
  options.top_k = static_cast<uint32_t>(std::clamp(generation["top_k"].number(50), 0.0, 1e9));
  options.top_p = generation["top_p"].number(1);
  options.min_p = generation["min_p"].number(0);
  options.check();
  return options;
}

}  // namespace satchel::llm
