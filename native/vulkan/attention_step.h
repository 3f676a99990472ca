// Attention together with what stands between the layers of queries, keys and values and it: norms
// of heads, rotation and the rows of the caches.
#pragma once

#include <memory>

#include "fusion.h"

namespace satchel::vulkan {

struct AttentionNodes {
  NodeCall* attention = nullptr;
  NodeCall *write_k = nullptr, *write_v = nullptr;
  NodeCall *rope_q = nullptr, *rope_k = nullptr;  // null: both are not rotated
  NodeCall *norm_q = nullptr, *norm_k = nullptr;  // null: both are not normed

  // The layers' results.
  const Tensor& queries() const {
    return norm_q ? norm_q->in(0) : rope_q ? rope_q->in(0) : attention->in(0);
  }
  const Tensor& keys() const {
    return norm_k ? norm_k->in(0) : rope_k ? rope_k->in(0) : write_k->in(1);
  }
  const Tensor& values() const { return write_v->in(1); }
};

// Attention alone.
void record_attention(const NodeCall& call, Work& work);
uint64_t attention_scratch(const NodeCall& call, Work& work);

// Loads the norms' weights; null if a shader cannot see them at once.
std::unique_ptr<Step> make_attention_step(const AttentionNodes& nodes, Weights& weights);

}  // namespace satchel::vulkan
