// Which nodes of a part are done by one dispatch, and where their values lie.
#pragma once

#include <memory>
#include <vector>

#include "../runtime/executor.h"
#include "op.h"

namespace satchel::vulkan {

struct FusedStep {
  std::unique_ptr<Step> step;
  std::vector<const NodeCall*> nodes;
};

struct FusionContext {
  BoundMethod& method;
  const PartInfo& info;
  const DeviceInfo& device;
};

// The part's steps, in order. Weights that one dispatch reads together are loaded side by side.
std::vector<FusedStep> fuse(const FusionContext& context, Weights& weights);

// Where a part's values lie. The method's own arena uses bytes again as soon as nodes that are run
// one after the other allow it; steps of several nodes need an arena of their own.
class Places {
 public:
  // Where bytes are `used_again`, values have those of earlier ones that nobody needs any more.
  Places(const FusionContext& context, const std::vector<FusedStep>& steps, bool used_again);

  uint64_t offset(uint32_t value) const { return offsets_[value]; }
  uint64_t bytes() const { return bytes_; }  // 0: they are where the method has them

 private:
  std::vector<uint64_t> offsets_;
  uint64_t bytes_ = 0;
};

}  // namespace satchel::vulkan
