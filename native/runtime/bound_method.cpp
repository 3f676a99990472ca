#include "bound_method.h"

#include <algorithm>
#include <map>

#include "cpu_op.h"
#include "errors.h"
#include "program.h"

namespace satchel {

namespace {

std::vector<Tensor> make_tensors(const Program& program, const Method& method) {
  std::vector<Tensor> tensors(method.values.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ValueInfo& value = method.values[i];
    Tensor& t = tensors[i];
    t.info = &value;
    t.dtype = value.dtype;
    t.rank = value.shape.size();
    t.paged = value.storage == Storage::state && program.states()[value.location].is_cache;
    if (value.storage == Storage::weight) {
      t.weight = &program.file().weights()[value.location];
      if (!t.weight->is_matrix()) t.data = const_cast<uint8_t*>(t.weight->codes);
    }
  }
  return tensors;
}

std::vector<int64_t> largest_sizes(const Method& method) {
  std::vector<int64_t> sizes;
  for (const SymbolInfo& symbol : method.symbols) sizes.push_back(symbol.maximum);
  if (!compute_sizes(method.symbols, sizes))
    throw ExecutionError(method.name + " has a size that is above its maximum");
  return sizes;
}

void set_sizes(std::vector<Tensor>& tensors, const std::vector<int64_t>& sizes) {
  for (Tensor& t : tensors) {
    for (size_t i = 0; i < t.rank; ++i) {
      const int64_t dim = t.info->shape[i];
      t.shape[i] = dim < 0 ? sizes[static_cast<size_t>(-1 - dim)] : dim;
    }
  }
}

// Whether there is nothing to do, because the result has no elements.
bool leaves_out(const NodeCall& call) {
  if (call.output->elements() == 0) return true;
  const auto empty = [](const Tensor* t) { return t && t->elements() == 0; };
  if (!call.info->op->takes_empty && std::any_of(call.inputs.begin(), call.inputs.end(), empty))
    reject(call, "nothing was chosen, and of nothing there is no result");
  return false;
}

void bind_node(NodeCall& call, const NodeInfo& node, std::vector<Tensor>& tensors) {
  call.info = &node;
  call.inputs.clear();
  call.inputs.reserve(node.inputs.size());
  for (const uint32_t id : node.inputs)
    call.inputs.push_back(id == kAbsent ? nullptr : &tensors[id]);
  call.output = &tensors[node.output];
}

// One call serves all nodes, one after the other: a file of many small nodes is checked in little
// memory.
void check_nodes_at(const Method& method, std::vector<Tensor>& tensors,
                    const std::vector<int64_t>& sizes) {
  set_sizes(tensors, sizes);
  NodeCall call;
  for (const NodeInfo& node : method.nodes) {
    call.params = {};
    bind_node(call, node, tensors);
    node.op->check(call);
    const CpuOp* op = find_cpu_op(*node.op);
    if (op && op->scratch) op->scratch(call, 1);
  }
}

}  // namespace

void check_nodes(const Program& program, const Method& method) {
  std::vector<Tensor> tensors = make_tensors(program, method);
  check_nodes_at(method, tensors, largest_sizes(method));
  std::vector<int64_t> smallest(method.symbols.size(), 1);
  // Where something computed would have no entries, that size is refused when it is bound.
  if (compute_sizes(method.symbols, smallest)) check_nodes_at(method, tensors, smallest);
}

BoundMethod::BoundMethod(const Program& program, const Method& method)
    : method_(&method), tensors_(make_tensors(program, method)), calls_(method.nodes.size()) {
  for (size_t n = 0; n < calls_.size(); ++n) bind_node(calls_[n], method.nodes[n], tensors_);
  count_uses();
}

void BoundMethod::count_uses() {
  // The last value at a place of the arena. A tree, because files choose places, and could choose
  // such as collide in a hash table.
  std::map<uint64_t, Tensor*> written;
  bool known = true;  // who wrote everything that is read
  std::vector<bool> is_result(tensors_.size(), false);
  const auto number = [&](const Tensor* t) { return static_cast<size_t>(t - tensors_.data()); };
  for (const NodeCall& call : calls_) is_result[number(call.output)] = true;
  const auto use = [&](Tensor& t) {
    const bool shares = t.info->storage == Storage::arena && !is_result[number(&t)];
    Tensor* writer = &t;
    if (shares) {
      const auto found = written.find(t.info->location);
      writer = found == written.end() ? nullptr : found->second;
      known = known && writer;
    }
    t.source = writer;
    if (writer) ++writer->uses;
  };
  for (const NodeCall& call : calls_) {
    for (Tensor* input : call.inputs) {
      if (input) use(*input);
    }
    if (call.output->info->storage == Storage::arena)
      written[call.output->info->location] = call.output;
  }
  for (const uint32_t id : method_->outputs) use(tensors_[id]);
  // Something was read that nobody wrote just there: then nothing is known of anybody.
  if (!known)
    for (Tensor& t : tensors_) t.uses += 2;
}

bool BoundMethod::bind(const std::vector<int64_t>& sizes, size_t until) {
  if (sizes == bound_ && is_bound_) return false;
  is_bound_ = false;  // so that a failure half-way is not taken for done
  set_sizes(tensors_, sizes);
  for (size_t n = 0; n < std::min(until, calls_.size()); ++n) {
    if (!leaves_out(calls_[n])) calls_[n].info->op->check(calls_[n]);
  }
  bound_ = sizes;
  is_bound_ = true;
  return true;
}

void BoundMethod::bind_largest() { bind(largest_sizes(*method_)); }

}  // namespace satchel
