// A GPU, by Vulkan: memory of its own, and shaders for the ops of language models.
#pragma once

#include <string>
#include <vector>

#include "../runtime/executor.h"
#include "op.h"

namespace satchel::vulkan {

class VulkanExecutor : public Executor {
 public:
  // The device's number in Library::devices(), and the folder that pipelines are kept in (empty:
  // none). Throws ExecutionError if there is no such device.
  VulkanExecutor(size_t device, std::string cache_folder);

  const std::string& name() const override { return name_; }
  std::string refuses(const NodeCall& call) const override;
  void open(std::shared_ptr<const Program> program, uint64_t arena_bytes) override;
  std::unique_ptr<StateMemory> make_state(size_t state, uint64_t bytes) override;
  std::unique_ptr<Part> prepare(BoundMethod& method, const PartInfo& info) override;

 private:
  friend class VulkanPart;

  // Values of all methods share an arena, whose size is the largest of theirs.
  void need_arena(uint64_t bytes);

  Device device_;
  std::string name_ = "vulkan";
  Pipelines pipelines_;
  Transfers transfers_;
  Weights weights_;
  std::shared_ptr<const Program> program_;
  std::unique_ptr<Buffer> arena_, scratch_;
  std::vector<DeviceState*> states_;  // by their number; null: another executor's
};

}  // namespace satchel::vulkan
