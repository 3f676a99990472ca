// A GPU, by Vulkan: memory of its own, and shaders for the ops of language models.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../runtime/executor.h"
#include "op.h"
#include "transfers.h"
#include "turns.h"

namespace satchel::vulkan {

// A device by its number in Library::devices(). Throws ExecutionError if there is no such device,
// or it is too small for the shaders.
DeviceInfo find_device(size_t number);

class VulkanExecutor : public Executor {
 public:
  // The device's number in Library::devices(), and the folder that pipelines are kept in (empty:
  // none). Of the layers it takes the first `most_layers`, and what lies before them; what lies
  // behind them only if it has them all. Throws ExecutionError if there is no such device.
  VulkanExecutor(size_t device, std::string cache_folder, int64_t most_layers = INT64_MAX);
  ~VulkanExecutor() override;

  const std::string& name() const override { return name_; }
  void look_at(const BoundMethod& method) override;
  std::string refuses(const NodeCall& call) const override;
  void open(std::shared_ptr<const Program> program, uint64_t arena_bytes) override;
  std::unique_ptr<StateMemory> make_state(size_t state, uint64_t bytes) override;
  std::unique_ptr<Part> prepare(BoundMethod& method, const PartInfo& info) override;
  uint64_t memory_taken() const override { return device_.memory_taken(); }
  void start_profile() override { profile_.emplace(); }
  Profile take_profile() override {
    return std::exchange(profile_, std::nullopt).value_or(Profile{});
  }

 private:
  friend class VulkanPart;

  void find_layers_beyond(const BoundMethod& method);
  void find_numbers(const BoundMethod& method);

  // Values of all methods share an arena, which is as large as any run so far has needed.
  void need_arena(uint64_t bytes);

  Device device_;
  std::string name_ = "vulkan";
  Pipelines pipelines_;
  Transfers transfers_;
  Weights weights_;
  std::shared_ptr<const Program> program_;
  std::unique_ptr<Buffer> arena_, scratch_;
  std::vector<DeviceState*> states_;  // by their number; null: another executor's
  int64_t most_layers_;
  std::unordered_set<const NodeCall*> beyond_;        // of layers that it does not take
  std::unordered_map<const Tensor*, int64_t> below_;  // what computed numbers are less than
  std::optional<Profile> profile_;
  bool takes_turns_;  // until somebody has waited in vain
};

}  // namespace satchel::vulkan
