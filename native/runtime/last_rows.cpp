#include "last_rows.h"

#include <algorithm>
#include <string_view>

namespace satchel {

namespace {

constexpr int64_t kFewestRows =
    32;  // of a block: other calls are bound anew for each number of wanted rows

// Each row of the result depends on that row of the inputs that have the same rows, and on all of
// the others.
bool works_by_rows(const NodeCall& call) {
  static constexpr std::string_view kOps[] = {
      "linear",   "rms_norm",      "layer_norm", "add",  "mul",       "affine", "rope",
      "silu_mul", "gelu_tanh_mul", "silu",       "gelu", "gelu_tanh", "relu"};
  const std::string_view name = call.info->op->name;
  if (name == "attention") return !call.has(5);  // the nodes of a tree depend on each other
  return std::find(std::begin(kOps), std::end(kOps), name) != std::end(kOps);
}

// Whether the first dimension, and no other, is the symbol: -1 - its number.
bool has_rows(const Tensor& t, int64_t symbol) {
  const std::vector<int64_t>& shape = t.info->shape;
  return !shape.empty() && shape[0] == symbol && t.info->storage != Storage::weight &&
         std::all_of(shape.begin() + 1, shape.end(), [](int64_t dim) { return dim >= 0; });
}

// Whether the symbol stands only where `has_rows` allows it, so that a part of the rows has the
// same meaning.
bool fits(const NodeCall& call, int64_t symbol) {
  // Tokens' rotations, sequences and positions have fewer dimensions than what they are for.
  const std::string_view name = call.info->op->name;
  const bool by_token = name == "rope" || name == "attention";
  const auto good = [&](const Tensor* t) {
    const std::vector<int64_t>& shape = t->info->shape;
    if (std::find(shape.begin(), shape.end(), symbol) == shape.end()) return true;
    return has_rows(*t, symbol) && (t->rank == call.output->rank || by_token);
  };
  return has_rows(*call.output, symbol) &&
         std::all_of(call.inputs.begin(), call.inputs.end(),
                     [&](const Tensor* t) { return !t || good(t); });
}

}  // namespace

LastRows::LastRows(const std::vector<NodeCall>& calls) : shortened_(calls.size(), false) {
  const auto take = std::find_if(calls.begin(), calls.end(), [](const NodeCall& call) {
    return std::string_view(call.info->op->name) == "take_rows";
  });
  if (take == calls.end() || take->in(0).info->shape.empty() || take->in(0).info->shape[0] >= 0)
    return;
  const int64_t symbol = take->in(0).info->shape[0];
  std::unordered_map<const Tensor*, size_t> uses;  // by calls that were found
  ++uses[take->in(0).source];
  for (auto number = static_cast<size_t>(take - calls.begin()); number-- > 0;) {
    const NodeCall& call = calls[number];
    const auto found = uses.find(call.output);
    if (found == uses.end() || found->second != call.output->uses) continue;
    if (!works_by_rows(call) || !fits(call, symbol)) continue;
    shortened_[number] = true;
    rows_ = &take->in(1), taken_ = &take->in(0);
    for (const Tensor* input : call.inputs) {
      if (input && has_rows(*input, symbol)) ++uses[input->source];
    }
  }
}

int64_t LastRows::first_wanted() const {
  if (!rows_ || taken_->shape[0] < kFewestRows) return 0;
  const auto [low, high] = std::minmax_element(rows_->i32(), rows_->i32() + rows_->shape[0]);
  return *low < 0 || *high >= taken_->shape[0] ? 0 : *low;
}

Tensor* LastRows::view_of(Tensor* whole) {
  if (!whole || !has_rows(*whole, taken_->info->shape[0])) return whole;
  Tensor*& part = parts_[whole];
  if (!part) part = &views_.emplace_back(View{whole, *whole}).part;
  return part;
}

size_t LastRows::bind(const std::vector<NodeCall>& calls, int64_t first, int threads) {
  const bool again = first == first_;
  if (!again) {
    first_ = 0;  // so that a failure half-way is not taken for done
    calls_ = calls;
    views_.clear();
    parts_.clear();
    for (size_t i = 0; i < calls.size(); ++i) {
      NodeCall& call = calls_[i];
      if (!shortened_[i]) continue;
      for (Tensor*& input : call.inputs) input = view_of(input);
      call.output = view_of(call.output);
    }
  }
  // The inputs lie elsewhere in each call.
  for (View& view : views_) {
    view.part.shape[0] = view.whole->shape[0] - first;
    view.part.data = view.whole->data;
    view.part.data += static_cast<size_t>(first * view.part.product(1, view.part.rank)) *
                      dtype_size(view.part.dtype);
  }
  if (again) return scratch_;
  scratch_ = 64;
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (shortened_[i]) {
      NodeCall& call = calls_[i];
      call.info->op->check(call);
      call.scratch = call.cpu->scratch ? call.cpu->scratch(call, threads) : 0;
    }
    scratch_ = std::max(scratch_, calls_[i].scratch);
  }
  join_calls(calls_);
  first_ = first;
  return scratch_;
}

void join_calls(std::vector<NodeCall>& calls) {
  for (size_t i = 0; i < calls.size(); i += 1 + calls[i].joined) {
    NodeCall& call = calls[i];
    const CpuOp* op = call.cpu;
    call.joined = 0;
    while (op->joins && call.output->elements() > 0 && i + 1 + call.joined < calls.size() &&
           op->joins({&call, call.joined + 1}, calls[i + 1 + call.joined])) {
      ++call.joined;
    }
  }
}

}  // namespace satchel
