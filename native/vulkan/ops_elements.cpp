// Ops on each element alone, and ops that only move elements.
#include <algorithm>

#include "../runtime/broadcast.h"
#include "walk.h"

namespace satchel::vulkan {

namespace {

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

// Codes, four to a thread, from `offset` elements on to places one behind the other.
void record_codes(const Walk& over, int64_t count, View from, int64_t offset, View to, Work& work) {
  constexpr uint32_t move = 5;  // of codes.comp
  const struct {
    Walk over;
    uint32_t count, a_first, b_first, y_first;
    float a_scale, b_scale, inverse_out_scale;
    int32_t a_zero, b_zero, out_zero;
    uint32_t a_offset;
  } push{over, word(count), from.first, from.first, to.first, 0, 0, 0, 0, 0, 0, word(offset)};
  work.recorder.dispatch("codes", {move}, {from, from, written(to)}, push,
                         groups_for((push.count + 3) / 4, 256));
}

bool is_codes(const Tensor& t) { return dtype_size(t.dtype) == 1; }

constexpr const char* kWholeWords = "the GPU takes arrays of numbers of 4 bytes or of 1";
std::string refuses_types(const NodeCall& call) {
  const size_t size = dtype_size(call.output->dtype);
  return size == 4 || size == 1 ? "" : kWholeWords;
}

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
  return walk_transposed(call) ? refuses_types(call) : kTooManyDimensions;
}

void record_transpose(const NodeCall& call, Work& work) {
  if (is_codes(*call.output)) {
    record_codes(*walk_transposed(call), call.output->elements(), work.view(call.in(0)), 0,
                 work.view(*call.output), work);
    return;
  }
  record_move(*walk_transposed(call), call.output->elements(), work.view(call.in(0)),
              work.view(*call.output), work);
}

std::string refuses_slice(const NodeCall& call, const DeviceInfo&) { return refuses_types(call); }

void record_slice(const NodeCall& call, Work& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  int64_t from[kMaxRank] = {}, to[kMaxRank] = {};
  dense_strides(x, from);
  dense_strides(y, to);
  View first = work.view(x);
  const int64_t offset = call.params.integer[1] * from[call.params.integer[0]];
  if (is_codes(y)) {
    record_codes(*walk(y.shape, y.rank, from, to), y.elements(), first, offset, work.view(y), work);
    return;
  }
  first.first += word(offset);
  record_move(*walk(y.shape, y.rank, from, to), y.elements(), first, work.view(y), work);
}

// What lies behind the axis, with it, in words; -1 where that is no whole number of them.
int64_t words_along(const NodeCall& call, const Tensor& x) {
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  const auto bytes = x.product(axis, x.rank) * static_cast<int64_t>(dtype_size(x.dtype));
  return bytes % 4 == 0 ? bytes / 4 : -1;
}

std::string refuses_concat(const NodeCall& call, const DeviceInfo&) {
  const auto is_odd = [&](const Tensor* x) { return words_along(call, *x) < 0; };
  return std::any_of(call.inputs.begin(), call.inputs.end(), is_odd)
             ? "the GPU puts whole words beside one another"
             : "";
}

void record_concat(const NodeCall& call, Work& work) {
  const Tensor& y = *call.output;
  const int64_t rows = y.product(0, static_cast<size_t>(call.params.integer[0]));
  View place = work.view(y);
  for (const Tensor* x : call.inputs) {
    const int64_t words = words_along(call, *x), shape[] = {rows, words};
    const int64_t from[] = {words, 1}, to[] = {words_along(call, y), 1};
    record_move(*walk(shape, 2, from, to), rows * words, work.view(*x), place, work);
    place.first += word(words);
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
    {"transpose", refuses_transpose, record_transpose, nullptr, nullptr, true},
    // What lies before the axis is one dimension in both, as is what lies behind it.
    {"slice", refuses_slice, record_slice, nullptr, nullptr, true},
    {"concat", refuses_concat, record_concat, nullptr, nullptr, true},
};

}  // namespace

std::span<const VulkanOp> element_ops() { return kOps; }

}  // namespace satchel::vulkan
