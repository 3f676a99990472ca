// rms_norm, layer_norm, softmax, rope_table, rope, take_rows and take.
#include <cmath>

#include "../runtime/errors.h"
#include "op.h"

namespace satchel::vulkan {

namespace {

std::string refuses_nothing(const NodeCall&, const DeviceInfo&) { return {}; }

// --- rms_norm(x, weight), layer_norm(x, weight, bias?) ---

std::string refuses_norm(const NodeCall& call, const DeviceInfo&) {
  if (call.output->dtype == DType::u8 && call.in(0).last() % 4 != 0)
    return "the GPU writes rows of whole words";
  return {};
}

template <bool kCentred>
void record_norm(const NodeCall& call, Work& work) {
  const Tensor& x = call.in(0);
  const int64_t rows = x.elements() / x.last();
  const bool to_codes = call.output->dtype == DType::u8;
  const View from = work.view(x), weight = work.view(call.in(1)),
             bias = call.has(2) ? work.view(call.in(2)) : weight, to = work.view(*call.output);
  const struct {
    uint32_t rows, cols, x_first, weight_first, bias_first, y_first;
    float eps, inverse_out_scale;
    int32_t out_zero;
  } push{word(rows),
         word(x.last()),
         from.first,
         weight.first,
         bias.first,
         to.first,
         static_cast<float>(call.params.number[0]),
         to_codes ? 1.0f / static_cast<float>(call.params.number[1]) : 0.0f,
         to_codes ? static_cast<int32_t>(call.params.integer[0]) : 0};
  work.recorder.dispatch("norm", {kCentred, call.has(2), to_codes},
                         {from, weight, bias, written(to)}, push,
                         groups_for(static_cast<uint64_t>(rows), 1));
}

// --- softmax(x) ---

void record_softmax(const NodeCall& call, Work& work) {
  const Tensor& x = call.in(0);
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  const int64_t inner = x.product(axis + 1, x.rank), lines = x.product(0, axis) * inner;
  const View from = work.view(x), to = work.view(*call.output);
  const struct {
    uint32_t size, inner, lines, x_first, y_first;
  } push{word(x.shape[axis]), word(inner), word(lines), from.first, to.first};
  work.recorder.dispatch("softmax", {}, {from, written(to)}, push,
                         groups_for(static_cast<uint64_t>(lines), 1));
}

// --- rope_table(positions, inverse_frequencies): by the host, because what shaders may make of the
// sine of a large number is next to nothing ---

std::string refuses_rope_table(const NodeCall& call, const DeviceInfo&) {
  if (!is_input(call.in(0)) || !call.in(1).weight)
    return "the GPU takes positions only from the method's inputs";
  return {};
}

HostTables::Key table_key(const NodeCall& call) { return {&call, nullptr, nullptr, 0}; }

void prepare_rope_table(const NodeCall& call, Work& work) {
  const Tensor &positions = call.in(0), &frequencies = call.in(1);
  const int64_t half = frequencies.shape[0], rows = positions.shape[0];
  std::vector<float> table(static_cast<size_t>(rows * 2 * half));
  for (int64_t row = 0; row < rows; ++row) {
    float* out = table.data() + row * 2 * half;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(positions.i32()[row]) * frequencies.f32()[i];
      out[i] = static_cast<float>(std::cos(double{angle}) * call.params.number[0]);
      out[half + i] = static_cast<float>(std::sin(double{angle}) * call.params.number[0]);
    }
  }
  work.tables.add("cosines and sines", table_key(call), table.data(), table.size() * sizeof(float));
}

void record_rope_table(const NodeCall& call, Work& work) {
  const HostTables::Entry& entry = *work.tables.find("cosines and sines", table_key(call));
  const Place table = work.tables.place(entry);
  work.recorder.copy({table.buffer, table.offset, entry.size}, work.place(*call.output));
}

// --- rope(x, table) ---

void record_rope(const NodeCall& call, Work& work) {
  const Tensor& x = call.in(0);
  const View from = work.view(x), table = work.view(call.in(1)), to = work.view(*call.output);
  const struct {
    uint32_t count, heads, dim, rotary, x_first, table_first, y_first;
  } push{word(x.elements()), word(x.shape[1]), word(x.shape[2]), word(call.in(1).shape[1]),
         from.first,         table.first,      to.first};
  work.recorder.dispatch("rope", {}, {from, table, written(to)}, push, groups_for(push.count, 256));
}

// --- take_rows(x, rows), take(x, numbers) ---

template <bool kOfRows>
size_t axis_of(const NodeCall& call) {
  return kOfRows ? 0 : static_cast<size_t>(call.params.integer[0]);
}

// What lies behind the axis, in words.
template <bool kOfRows>
int64_t words_behind(const NodeCall& call) {
  const Tensor& x = call.in(0);
  return x.product(axis_of<kOfRows>(call) + 1, x.rank) * static_cast<int64_t>(dtype_size(x.dtype)) /
         4;
}

template <bool kOfRows>
std::string refuses_take(const NodeCall& call, const DeviceInfo&) {
  const Tensor &x = call.in(0), &numbers = call.in(1);
  if (!is_known_to_host(numbers))
    return "the GPU takes numbers of rows only from the method's inputs";
  const int64_t bytes =
      x.product(axis_of<kOfRows>(call) + 1, x.rank) * static_cast<int64_t>(dtype_size(x.dtype));
  return bytes % 4 == 0 ? "" : "the GPU takes rows of whole words";
}

template <bool kOfRows>
void prepare_take(const NodeCall& call, Work&) {
  check_entries(call.in(1), call.in(0).shape[axis_of<kOfRows>(call)], kOfRows ? "row" : "entry");
}

template <bool kOfRows>
void record_take(const NodeCall& call, Work& work) {
  const Tensor &x = call.in(0), &numbers = call.in(1), &y = *call.output;
  const View from = work.view(x), rows = work.view(numbers), to = work.view(y);
  const int64_t width = words_behind<kOfRows>(call);
  const struct {
    uint32_t count, width, all_rows, taken_rows, x_first, rows_first, y_first;
  } push{word(y.product(0, axis_of<kOfRows>(call)) * numbers.elements() * width),
         word(width),
         word(x.shape[axis_of<kOfRows>(call)]),
         word(numbers.elements()),
         from.first,
         rows.first,
         to.first};
  work.recorder.dispatch("take_rows", {}, {from, rows, written(to)}, push,
                         groups_for(push.count, 256));
}

const VulkanOp kOps[] = {
    {"rms_norm", refuses_norm, record_norm<false>},
    {"layer_norm", refuses_norm, record_norm<true>, nullptr, nullptr, true},
    {"softmax", refuses_nothing, record_softmax},
    {"rope_table", refuses_rope_table, record_rope_table, prepare_rope_table},
    {"rope", refuses_nothing, record_rope},
    {"take_rows", refuses_take<true>, record_take<true>, prepare_take<true>},
    {"take", refuses_take<false>, record_take<false>, prepare_take<false>, nullptr, true},
};

}  // namespace

std::span<const VulkanOp> row_ops() { return kOps; }

}  // namespace satchel::vulkan
