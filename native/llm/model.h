// A language model: a program with its tokenizer and what its metadata say,
// ready to be run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../runtime/instance.h"
#include "engine.h"
#include "json.h"
#include "sampler.h"
#include "tokenizer.h"

namespace satchel::llm {

class Model {
 public:
  // 0 threads: one for each core; 0 bytes of cache: half of the machine's
  // memory. The target is the CPU, a GPU (vulkan[:DEVICE[:LAYERS]]), or an NPU that the file is for
  // (qnn:CHIP).
  // Throws FormatError if the file is not a valid program, ConfigError if it is
  // no language model, has no compiled tokenizer or is not for the target.
  static std::shared_ptr<Model> open(const std::string& path, int threads = 0,
                                     uint64_t cache_memory = 0, const std::string& target = kCpu);
  static constexpr const char* kCpu = "cpu";

  const Program& program() const { return *program_; }
  Engine& engine() const { return *engine_; }
  // On the CPU and a GPU, which also run what is no step: embeddings, and what sees.
  Instance& instance() const { return *instance_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const Json& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

  // The most tokens of a text, and of a step of a prompt.
  int64_t context() const { return context_; }
  int64_t prefill_length() const { return prefill_length_; }

  // A method by its name, with the adapter's suffix; throws ConfigError if
  // there is none.
  std::optional<size_t> find_method(const std::string& name) const;
  size_t adapted(const std::string& name, const std::string& adapter) const;

  // How the model is sampled unless something else is asked for.
  SamplingOptions usual_sampling(bool chats) const;

 private:
  Model(const std::string& path, int threads, uint64_t cache_memory, const std::string& target);

  std::string path_;
  std::shared_ptr<Program> program_;
  Json metadata_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Instance> instance_;
  std::unique_ptr<Engine> engine_;
  int64_t context_ = 0, prefill_length_ = 1;
};

// The most tokens that a method's first input takes.
int64_t most_tokens(const Method& method);

// The compiled tokenizer of a program, or null if it has none. Throws FormatError if it is damaged.
std::unique_ptr<Tokenizer> open_tokenizer(std::shared_ptr<const Program> program);

// The targets that a program says it is for, the usual one first.
std::vector<std::string> targets_of(const Json& metadata);

// The metadata of any program, which must be what was written. Throws
// FormatError.
Json read_metadata(const ProgramFile& file);

}  // namespace satchel::llm
