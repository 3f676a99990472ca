// Ops on each element alone, and ops that only move elements.
#include <algorithm>

#include "../runtime/broadcast.h"
#include "op.h"

namespace satchel::vulkan {

namespace {

// Dimensions with the strides of two operands, those that lie behind one another in both as one.
struct Walk {
  uint32_t shape[4], a[4], b[4];
};

std::optional<Walk> walk(const int64_t* shape, size_t rank, const int64_t* a, const int64_t* b) {
  int64_t sizes[kMaxRank], as[kMaxRank], bs[kMaxRank];
  size_t count = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (shape[i] == 1) continue;
    if (count > 0 && as[count - 1] == a[i] * shape[i] && bs[count - 1] == b[i] * shape[i]) {
      sizes[count - 1] *= shape[i], as[count - 1] = a[i], bs[count - 1] = b[i];
    } else {
      sizes[count] = shape[i], as[count] = a[i], bs[count] = b[i];
      ++count;
    }
  }
  if (count > 4) return std::nullopt;
  Walk found{{1, 1, 1, 1}, {}, {}};
  for (size_t i = 0; i < count; ++i) {
    found.shape[4 - count + i] = word(sizes[i]);
    found.a[4 - count + i] = word(as[i]), found.b[4 - count + i] = word(bs[i]);
  }
  return found;
}

void dense_strides(const Tensor& t, int64_t* steps) {
  for (size_t i = 0; i < t.rank; ++i) steps[i] = t.product(i + 1, t.rank);
}

constexpr const char* kTooManyDimensions = "the GPU takes at most four dimensions that differ";

// --- elementwise ---

enum Code : uint32_t {  // those of elementwise.comp; below them are the activations
  kAdd = 16,
  kSub,
  kMul,
  kDiv,
  kSiluMul,
  kGeluTanhMul,
  kAffine,
  kClamp,
  kNeg,
  kAbs,
  kExp,
  kSqrt,
  kRsqrt
};

std::optional<Walk> walk_operands(const NodeCall& call) {
  const Tensor &y = *call.output, &a = call.in(0), &b = call.has(1) ? call.in(1) : a;
  int64_t steps_a[kMaxRank] = {}, steps_b[kMaxRank] = {};
  broadcast_strides(a, y, steps_a);
  broadcast_strides(b, y, steps_b);
  return walk(y.shape, y.rank, steps_a, steps_b);
}

std::string refuses_elements(const NodeCall& call, const DeviceInfo&) {
  if (call.output->dtype != DType::f32) return "the GPU computes in f32 only";
  return walk_operands(call) ? "" : kTooManyDimensions;
}

template <uint32_t kCode>
void record_elements(const NodeCall& call, Work& work) {
  const Walk over = *walk_operands(call);
  const View a = work.view(call.in(0)), b = call.has(1) ? work.view(call.in(1)) : a,
             y = work.view(*call.output);
  const struct {
    Walk over;
    uint32_t count, a_first, b_first, y_first;
    float first, second;
  } push{over,
         word(call.output->elements()),
         a.first,
         b.first,
         y.first,
         static_cast<float>(call.params.number[0]),
         static_cast<float>(call.params.number[1])};
  work.recorder.dispatch("elementwise", {kCode}, {a, b, written(y)}, push,
                         groups_for(push.count, 256));
}

// --- reshape, transpose, slice, concat ---

void record_move(const Walk& over, int64_t count, View from, View to, Work& work) {
  const struct {
    Walk over;
    uint32_t count, x_first, y_first;
  } push{over, word(count), from.first, to.first};
  work.recorder.dispatch("move", {}, {from, written(to)}, push, groups_for(push.count, 256));
}

std::string refuses_nothing(const NodeCall&, const DeviceInfo&) { return {}; }

void record_reshape(const NodeCall& call, Work& work) {
  const Place from = work.place(call.in(0)), to = work.place(*call.output);
  if (from.buffer == to.buffer && from.offset == to.offset) return;
  work.recorder.copy(from, to);
}

std::optional<Walk> walk_transposed(const NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  const std::vector<int64_t> perm = ints_attribute(call, "perm");
  int64_t from[kMaxRank] = {}, to[kMaxRank] = {};
  for (size_t i = 0; i < y.rank; ++i) from[i] = x.product(static_cast<size_t>(perm[i]) + 1, x.rank);
  dense_strides(y, to);
  return walk(y.shape, y.rank, from, to);
}

std::string refuses_transpose(const NodeCall& call, const DeviceInfo&) {
  return walk_transposed(call) ? "" : kTooManyDimensions;
}

void record_transpose(const NodeCall& call, Work& work) {
  record_move(*walk_transposed(call), call.output->elements(), work.view(call.in(0)),
              work.view(*call.output), work);
}

void record_slice(const NodeCall& call, Work& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  int64_t from[kMaxRank] = {}, to[kMaxRank] = {};
  dense_strides(x, from);
  dense_strides(y, to);
  View first = work.view(x);
  first.first += word(call.params.integer[1] * from[call.params.integer[0]]);
  record_move(*walk(y.shape, y.rank, from, to), y.elements(), first, work.view(y), work);
}

void record_concat(const NodeCall& call, Work& work) {
  const Tensor& y = *call.output;
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  int64_t from[kMaxRank] = {}, to[kMaxRank] = {};
  dense_strides(y, to);
  View place = work.view(y);
  for (const Tensor* x : call.inputs) {
    dense_strides(*x, from);
    record_move(*walk(x->shape, x->rank, from, to), x->elements(), work.view(*x), place, work);
    place.first += word(x->shape[axis] * to[axis]);
  }
}

template <Activation kActivation>
constexpr auto record_activation = record_elements<static_cast<uint32_t>(kActivation)>;

const VulkanOp kOps[] = {
    {"add", refuses_elements, record_elements<kAdd>},
    {"sub", refuses_elements, record_elements<kSub>},
    {"mul", refuses_elements, record_elements<kMul>},
    {"div", refuses_elements, record_elements<kDiv>},
    {"silu_mul", refuses_elements, record_elements<kSiluMul>},
    {"gelu_tanh_mul", refuses_elements, record_elements<kGeluTanhMul>},
    {"affine", refuses_elements, record_elements<kAffine>},
    {"clamp", refuses_elements, record_elements<kClamp>},
    {"neg", refuses_elements, record_elements<kNeg>},
    {"abs", refuses_elements, record_elements<kAbs>},
    {"exp", refuses_elements, record_elements<kExp>},
    {"sqrt", refuses_elements, record_elements<kSqrt>},
    {"rsqrt", refuses_elements, record_elements<kRsqrt>},
    {"relu", refuses_elements, record_activation<Activation::relu>},
    {"hardswish", refuses_elements, record_activation<Activation::hardswish>},
    {"hardsigmoid", refuses_elements, record_activation<Activation::hardsigmoid>},
    {"silu", refuses_elements, record_activation<Activation::silu>},
    {"gelu", refuses_elements, record_activation<Activation::gelu>},
    {"gelu_tanh", refuses_elements, record_activation<Activation::gelu_tanh>},
    {"sigmoid", refuses_elements, record_activation<Activation::sigmoid>},
    {"tanh", refuses_elements, record_activation<Activation::tanh>},
    {"reshape", refuses_nothing, record_reshape, nullptr, nullptr, true},
    {"transpose", refuses_transpose, record_transpose},
    // What lies before the axis is one dimension in both, as is what lies behind it.
    {"slice", refuses_nothing, record_slice},
    {"concat", refuses_nothing, record_concat},
};

}  // namespace

std::span<const VulkanOp> element_ops() { return kOps; }

}  // namespace satchel::vulkan
