#include <algorithm>
#include <mutex>
#include <numeric>

#include "../kernels/bandwidth.h"
#include "../runtime/errors.h"
#include "../runtime/instance.h"
#include "engine.h"

namespace satchel::llm {

namespace {

class InstanceEngine final : public Engine {
 public:
  InstanceEngine(Instance& instance, Chip chip) : instance_(instance), chip_(std::move(chip)) {}

  std::string kernels() const override {
    return (chip_.name.empty() ? "" : chip_.name + ", ") + instance_.cpu().kernels();
  }
  bool is_emulated() const override { return chip_.is_emulated; }
  std::string remark() const override { return chip_.remark; }
  bool chooses_tokens() const override { return chip_.chooses_tokens; }
  std::string other_bits_in_blocks() const override { return chip_.other_bits_in_blocks; }
  double measure_read_bandwidth() const override {
    return chip_.measure_read_bandwidth ? chip_.measure_read_bandwidth()
                                        : Engine::measure_read_bandwidth();
  }
  uint64_t device_memory() const override { return instance_.device_memory(); }
  int threads() const override { return instance_.cpu().threads(); }
  bool takes_embeddings() const override { return true; }

  int32_t open_sequence() override {
    const std::lock_guard<std::recursive_mutex> lock(instance_.mutex());
    return instance_.sequences().open();
  }
  void close_sequence(int32_t sequence) override {
    const std::lock_guard<std::recursive_mutex> lock(instance_.mutex());
    instance_.sequences().close(sequence);
  }
  void truncate(int32_t sequence, size_t length) override {
    const std::lock_guard<std::recursive_mutex> lock(instance_.mutex());
    instance_.sequences().truncate(sequence, static_cast<int64_t>(length));
  }

  size_t most_guesses(size_t block) const override {
    // Kernels may sum blocks of 64 rows and more in another order than single rows, and a token of
    // 16-bit activations is two rows: beyond this a text would no longer be exactly the greedy one.
    constexpr size_t kMostRows = 31;
    return chip_.other_bits_in_blocks.empty() ? std::min(kMostRows, block) : 1;
  }

  void run(const TokenStep& step, std::vector<float>& logits) override;

  std::vector<int32_t> run_chain(size_t method, Chain chain) override {
    const std::lock_guard<std::recursive_mutex> lock(instance_.mutex());
    return instance_.run_chain(method, std::move(chain));
  }

 private:
  Instance& instance_;
  Chip chip_;
};

void InstanceEngine::run(const TokenStep& step, std::vector<float>& logits) {
  const Method& method = instance_.program().methods()[step.method];
  const auto count = static_cast<int64_t>(step.tokens.size());
  std::vector<int32_t> ids(step.tokens.begin(), step.tokens.end());
  std::vector<int32_t> positions(step.tokens.size()), parents(step.tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(step.position));
  std::iota(parents.begin(), parents.end(), -1);
  const std::vector<int32_t> sequences(step.tokens.size(), step.sequence);
  std::vector<int32_t> rows(step.tokens.size() - step.first_row);
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(step.first_row));
  const auto row_count = static_cast<int64_t>(rows.size());
  std::vector<ArrayView> inputs;
  for (const uint32_t id : method.inputs) {
    const std::string& name = method.values[id].name;
    if (name == "rows") {
      inputs.push_back({DType::i32, {row_count}, rows.data()});
      continue;
    }
    if (name == "embedded") {
      const auto hidden = static_cast<int64_t>(step.embedded.size()) / count;
      inputs.push_back({DType::f32, {count, hidden}, step.embedded.data()});
      continue;
    }
    const std::vector<int32_t>* column = name == "tokens"     ? &ids
                                         : name == "sequence" ? &sequences
                                         : name == "position" ? &positions
                                         : name == "parents"  ? &parents
                                                              : nullptr;
    if (column == nullptr) {
      throw ExecutionError("the method " + method.name + " takes the input '" + name +
                           "', which is not known here");
    }
    inputs.push_back({DType::i32, {count}, column->data()});
  }
  const std::lock_guard<std::recursive_mutex> lock(instance_.mutex());
  const std::vector<ArrayView> outputs = instance_.run(step.method, inputs);
  if (outputs.size() != 1 || outputs[0].dtype != DType::f32 || outputs[0].shape.size() != 2 ||
      outputs[0].shape[0] != row_count)
    throw ExecutionError("the method " + method.name + " does not give the logits of its rows");
  logits.resize(rows.size() * static_cast<size_t>(outputs[0].shape[1]));
  instance_.cpu().copy(static_cast<const uint8_t*>(outputs[0].data), logits.size() * sizeof(float),
                       reinterpret_cast<uint8_t*>(logits.data()));
}

}  // namespace

std::unique_ptr<Engine> make_engine(Instance& instance, Chip chip) {
  return std::make_unique<InstanceEngine>(instance, std::move(chip));
}

std::vector<int32_t> Engine::run_chain(size_t, Chain) { return {}; }

double Engine::measure_read_bandwidth() const { return satchel::measure_read_bandwidth(threads()); }

}  // namespace satchel::llm
