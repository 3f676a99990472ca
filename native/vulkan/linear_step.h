// Layers with activations in bytes, together with what stands around them: a norm before them,
// layers of the same input, the product of two of them, a sum behind them.
#pragma once

#include <memory>

#include "fusion.h"

namespace satchel::vulkan {

struct LinearNodes {
  std::vector<NodeCall*> linears;  // of one input, at most three
  NodeCall* norm = nullptr;        // its result is the input, and nobody else's
  NodeCall* product = nullptr;     // silu_mul or gelu_tanh_mul of both linears
  NodeCall* sum = nullptr;         // add of the only linear's result and of what was there before
  const Tensor* residual = nullptr;
};

// Whether there are shaders that multiply its bytes.
bool multiplies_bytes(const NodeCall& linear, const DeviceInfo& device);
// Whether both can be done by one dispatch.
bool can_join(const NodeCall& a, const NodeCall& b);
// Loads the weights; null if they do not lie so that a shader can see all of them.
std::unique_ptr<Step> make_linear_step(const LinearNodes& nodes, const FusionContext& context,
                                       Weights& weights);

}  // namespace satchel::vulkan
