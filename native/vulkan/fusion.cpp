#include "fusion.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "attention_step.h"
#include "linear_step.h"

namespace satchel::vulkan {

namespace {

// How far behind a node those that belong to it may be.
constexpr size_t kLookAhead = 64;

bool is_op(const NodeCall& call, const char* name) {
  return std::strcmp(call.info->op->name, name) == 0;
}

class NodeStep : public Step {
 public:
  explicit NodeStep(const NodeCall& call) : call_(call), op_(*find_op(call.info->op->name)) {}
  void prepare(Work& work) override {
    if (op_.prepare) op_.prepare(call_, work);
  }
  uint64_t scratch(Work& work) const override { return op_.scratch ? op_.scratch(call_, work) : 0; }
  void record(Work& work) override { op_.record(call_, work); }

 private:
  const NodeCall& call_;
  const VulkanOp& op_;
};

// Goes through a part's nodes and takes those together that are known to belong together.
class Fuser {
 public:
  Fuser(const FusionContext& context, Weights& weights) : context_(context), weights_(weights) {
    std::vector<NodeCall>& calls = context.method.calls();
    for (size_t n = context.info.first; n < context.info.last; ++n) {
      nodes_.push_back(&calls[n]);
      own_.insert(calls[n].output);
    }
    const std::vector<Tensor>& tensors = context.method.tensors();
    can_fuse_ =
        context.device.features.integer_dot &&
        std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.source; });
  }

  std::vector<FusedStep> steps() {
    if (can_fuse_) find_attentions();
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (done_.contains(nodes_[n])) continue;
      at_ = n;
      taken_ = {nodes_[n]};
      std::unique_ptr<Step> step = can_fuse_ ? fused(*nodes_[n]) : nullptr;
      if (!step) step = std::make_unique<NodeStep>(*nodes_[n]);
      for (const NodeCall* call : taken_) made_.insert(call->output);
      steps_.push_back({std::move(step), std::move(taken_)});
    }
    return std::move(steps_);
  }

 private:
  std::unique_ptr<Step> fused(NodeCall& call) {
    if (is_op(call, "attention")) {
      const auto found = attentions_.find(&call);
      if (found == attentions_.end()) return nullptr;
      const AttentionNodes& nodes = found->second.first;
      for (const NodeCall* before :
           {nodes.write_k, nodes.write_v, nodes.rope_q, nodes.rope_k, nodes.norm_q, nodes.norm_k}) {
        if (before) taken_.push_back(before);
      }
      return std::move(found->second.second);
    }
    if (is_op(call, "rms_norm")) return around_norm(call);
    if (is_op(call, "linear") && multiplies_bytes(call, context_.device))
      return around_linear(call, nullptr);
    return nullptr;
  }

  // What stands before attention is done along with it: it is left out in its turn.
  void find_attentions() {
    for (NodeCall* call : nodes_) {
      writers_[call->output] = call;
      if (is_op(*call, "attention")) find_attention(*call);
    }
  }

  void find_attention(NodeCall& call) {
    AttentionNodes nodes;
    nodes.attention = &call;
    nodes.write_k = writer(call.in(1), "cache_write");
    nodes.write_v = writer(call.in(2), "cache_write");
    if (!nodes.write_k || !nodes.write_v || nodes.write_k == nodes.write_v) return;
    const Tensor *q = &call.in(0), *k = &nodes.write_k->in(1);
    std::vector<NodeCall*> before{nodes.write_k, nodes.write_v};
    const auto step_back = [&](const char* op, NodeCall*& of_q, NodeCall*& of_k) {
      of_q = writer(*q, op), of_k = writer(*k, op);
      if (!of_q && !of_k) return true;
      if (!of_q || !of_k) return false;
      q = &of_q->in(0), k = &of_k->in(0);
      before.insert(before.end(), {of_q, of_k});
      return true;
    };
    if (!step_back("rope", nodes.rope_q, nodes.rope_k)) return;
    if (!step_back("rms_norm", nodes.norm_q, nodes.norm_k)) return;
    if (!fits(nodes)) return;
    std::unique_ptr<Step> step = make_attention_step(nodes, weights_);
    if (!step) return;
    attentions_[&call] = {nodes, std::move(step)};
    done_.insert(before.begin(), before.end());
  }

  // Both ways to look at the same things, and heads whose sizes are those of the caches.
  static bool fits(const AttentionNodes& nodes) {
    const Tensor &q = nodes.attention->in(0), &k = nodes.write_k->in(0), &v = nodes.write_v->in(0);
    const auto same_step = [&](const NodeCall& write) {
      for (size_t i = 0; i < 3; ++i) {
        const bool has = nodes.attention->has(3 + i);
        if (has != write.has(2 + i) || (has && &nodes.attention->in(3 + i) != &write.in(2 + i)))
          return false;
      }
      return true;
    };
    if (!same_step(*nodes.write_k) || !same_step(*nodes.write_v)) return false;
    if (k.dtype != v.dtype || k.shape[0] != v.shape[0] || k.shape[1] != v.shape[1]) return false;
    if (nodes.queries().info->storage != Storage::arena ||
        nodes.keys().info->storage != Storage::arena ||
        nodes.values().info->storage != Storage::arena || q.info->storage != Storage::arena)
      return false;
    if (nodes.rope_q && (nodes.rope_q->in(1).source != nodes.rope_k->in(1).source ||
                         nodes.rope_q->in(1).info->storage != Storage::arena))
      return false;
    if (!nodes.norm_q) return true;
    const NodeCall &a = *nodes.norm_q, &b = *nodes.norm_k;
    return a.in(1).weight && b.in(1).weight && a.in(0).last() == q.last() &&
           b.in(0).last() == q.last() && a.params.number[0] == b.params.number[0];
  }

  // Who wrote it, if that is such an op and nobody else reads it.
  NodeCall* writer(const Tensor& t, const char* op) const {
    const auto found = writers_.find(t.info->storage == Storage::arena ? t.source : &t);
    if (found == writers_.end() || !is_op(*found->second, op)) return nullptr;
    return found->first->uses == 1 ? found->second : nullptr;
  }

  // The nodes of this part, not yet done, that read what `tensor` holds.
  std::vector<NodeCall*> readers(const Tensor& tensor) const {
    std::vector<NodeCall*> found;
    const size_t end = std::min(nodes_.size(), at_ + kLookAhead);
    for (size_t n = at_; n < end; ++n) {
      for (const Tensor* input : nodes_[n]->inputs) {
        if (input && input->source == &tensor && !done_.contains(nodes_[n])) {
          found.push_back(nodes_[n]);
          break;
        }
      }
      if (found.size() >= tensor.uses) break;
    }
    return found;
  }

  NodeCall* only_reader(const Tensor& tensor) const {
    if (tensor.uses != 1) return nullptr;
    const std::vector<NodeCall*> found = readers(tensor);
    return found.size() == 1 ? found[0] : nullptr;
  }

  std::unique_ptr<Step> around_norm(NodeCall& norm) {
    const Tensor& result = *norm.output;
    const std::vector<NodeCall*> layers = readers(result);
    const bool fits = !layers.empty() && layers.size() == result.uses && layers.size() <= 3 &&
                      norm.in(1).weight &&
                      std::all_of(layers.begin(), layers.end(), [&](NodeCall* l) {
                        return is_op(*l, "linear") && multiplies_bytes(*l, context_.device) &&
                               can_join(*l, *layers[0]) && l->in(0).last() == result.last();
                      });
    return fits ? around_linear(*layers[0], &norm) : nullptr;
  }

  std::unique_ptr<Step> around_linear(NodeCall& linear, NodeCall* norm) {
    LinearNodes nodes;
    nodes.norm = norm;
    const Tensor* input = linear.in(0).source;
    for (NodeCall* other : readers(*input)) {
      if (nodes.linears.size() == 3 || !is_op(*other, "linear") || other->in(0).source != input)
        continue;
      if (multiplies_bytes(*other, context_.device) && can_join(*other, linear))
        nodes.linears.push_back(other);
    }
    std::vector<NodeCall*> taken = nodes.linears;
    if (nodes.linears.size() == 2) find_product(nodes, taken);
    if (nodes.linears.size() == 1) find_sum(nodes, taken);
    std::unique_ptr<Step> step = make_linear_step(nodes, context_, weights_);
    if (!step) return nullptr;
    done_.insert(taken.begin(), taken.end());
    taken_.insert(taken_.end(), taken.begin(), taken.end());
    return step;
  }

  void find_product(LinearNodes& nodes, std::vector<NodeCall*>& taken) const {
    NodeCall* reader = only_reader(*nodes.linears[0]->output);
    if (!reader || reader != only_reader(*nodes.linears[1]->output)) return;
    if (!is_op(*reader, "silu_mul") && !is_op(*reader, "gelu_tanh_mul")) return;
    if (!same_shape(reader->in(0), reader->in(1)) ||
        nodes.linears[0]->params.activation != Activation::none)
      return;
    if (reader->in(0).source != nodes.linears[0]->output)
      std::swap(nodes.linears[0], nodes.linears[1]);
    nodes.product = reader;
    taken.push_back(reader);
  }

  void find_sum(LinearNodes& nodes, std::vector<NodeCall*>& taken) const {
    const Tensor* own = nodes.linears[0]->output;
    NodeCall* reader = only_reader(*own);
    if (!reader || !is_op(*reader, "add") || !same_shape(reader->in(0), reader->in(1))) return;
    const Tensor& other = reader->in(reader->in(0).source == own ? 1 : 0);
    if (other.source == own || !is_ready(other)) return;
    nodes.sum = reader;
    nodes.residual = &other;
    taken.push_back(reader);
  }

  // Whether it is there before this step.
  bool is_ready(const Tensor& t) const {
    if (t.info->storage != Storage::arena) return t.info->storage == Storage::input;
    return made_.contains(t.source) || !own_.contains(t.source);
  }

  const FusionContext& context_;
  Weights& weights_;
  // Where a value that is read has no known writer, nothing can be run but in its turn.
  bool can_fuse_ = false;
  std::vector<NodeCall*> nodes_;
  size_t at_ = 0;
  std::unordered_map<const Tensor*, NodeCall*> writers_;
  std::unordered_map<const NodeCall*, std::pair<AttentionNodes, std::unique_ptr<Step>>> attentions_;
  std::unordered_set<const NodeCall*> done_;
  std::unordered_set<const Tensor*> own_, made_;  // results of this part, and those there already
  std::vector<FusedStep> steps_;
  std::vector<const NodeCall*> taken_;  // by the step that is being made
};

// Bytes of an arena, given to the first place that is free.
class Room {
 public:
  uint64_t take(uint64_t bytes) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->second < bytes) continue;
      const uint64_t offset = gap->first, left = gap->second - bytes;
      gaps_.erase(gap);
      if (left > 0) gaps_[offset + bytes] = left;
      return offset;
    }
    // At the end, where the last gap may be.
    uint64_t offset = end_;
    if (!gaps_.empty() && gaps_.rbegin()->first + gaps_.rbegin()->second == end_) {
      offset = gaps_.rbegin()->first;
      gaps_.erase(offset);
    }
    end_ = offset + bytes;
    return offset;
  }

  void give_back(uint64_t offset, uint64_t bytes) {
    if (bytes == 0) return;
    auto gap = gaps_.emplace(offset, bytes).first;
    const auto next = std::next(gap);
    if (next != gaps_.end() && offset + bytes == next->first) {
      gap->second += next->second;
      gaps_.erase(next);
    }
    if (gap == gaps_.begin()) return;
    const auto before = std::prev(gap);
    if (before->first + before->second != offset) return;
    before->second += gap->second;
    gaps_.erase(gap);
  }

  uint64_t end() const { return end_; }

 private:
  std::map<uint64_t, uint64_t> gaps_;
  uint64_t end_ = 0;
};

}  // namespace

Places::Places(const FusionContext& context, const std::vector<FusedStep>& steps, bool used_again)
    : offsets_(context.method.tensors().size(), 0) {
  const std::vector<Tensor>& tensors = context.method.tensors();
  const auto number = [&](const Tensor* t) { return static_cast<size_t>(t - tensors.data()); };
  std::vector<uint64_t> sizes(tensors.size(), 0);
  for (const Tensor& t : tensors) {
    if (t.info->storage != Storage::arena) continue;
    if (!t.source) return;  // nobody is known to have written it
    uint64_t& size = sizes[number(t.source)];
    size = std::max(size, round_up(t.info->max_bytes, kOffsetStep));
  }
  // The first and the last step that has to do with a value; what comes from elsewhere is there
  // from the beginning, and what goes elsewhere to the end.
  constexpr size_t kNever = SIZE_MAX;
  std::vector<size_t> first(tensors.size(), kNever), last(tensors.size(), 0);
  const auto see = [&](const Tensor* t, size_t step) {
    if (!t || t->info->storage != Storage::arena) return;
    const size_t value = number(t->source);
    first[value] = std::min(first[value], step);
    last[value] = std::max(last[value], step);
  };
  for (const uint32_t id : context.info.takes) see(&tensors[id], 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const NodeCall* call : steps[i].nodes) {
      for (const Tensor* t : call->inputs) see(t, i);
      see(call->output, i);
    }
  }
  for (const uint32_t id : context.info.gives) see(&tensors[id], steps.size());
  std::vector<std::vector<size_t>> begins(steps.size() + 1), ends(steps.size() + 1);
  for (size_t value = 0; value < tensors.size(); ++value) {
    if (first[value] == kNever) continue;
    begins[first[value]].push_back(value);
    ends[last[value]].push_back(value);
  }
  Room room;
  for (size_t i = 0; i <= steps.size(); ++i) {
    for (const size_t value : begins[i]) offsets_[value] = room.take(sizes[value]);
    if (!used_again) continue;
    for (const size_t value : ends[i]) room.give_back(offsets_[value], sizes[value]);
  }
  bytes_ = room.end();
  for (const Tensor& t : tensors) {
    if (t.info->storage == Storage::arena) offsets_[number(&t)] = offsets_[number(t.source)];
  }
}

std::vector<FusedStep> fuse(const FusionContext& context, Weights& weights) {
  return Fuser(context, weights).steps();
}

}  // namespace satchel::vulkan
