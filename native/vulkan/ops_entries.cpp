// argsort and gather.
#include "op.h"

namespace satchel::vulkan {

namespace {

size_t axis_of(const NodeCall& call) { return static_cast<size_t>(call.params.integer[0]); }

// --- argsort(x) ---

constexpr int64_t kLongestLine = 4096;  // every element is compared with every other one

std::string refuses_argsort(const NodeCall& call, const DeviceInfo&) {
  return call.in(0).shape[axis_of(call)] <= kLongestLine ? ""
                                                         : "the GPU sorts at most 4096 numbers";
}

void record_argsort(const NodeCall& call, Work& work) {
  const Tensor& x = call.in(0);
  const int64_t size = x.shape[axis_of(call)], inner = x.product(axis_of(call) + 1, x.rank);
  const View from = work.view(x), to = work.view(*call.output);
  const struct {
    uint32_t size, inner, lines, x_first, y_first;
  } push{word(size), word(inner), word(x.elements() / size), from.first, to.first};
  const bool is_descending = call.params.integer[1] != 0;
  work.recorder.dispatch("argsort", {x.dtype == DType::f32, is_descending}, {from, written(to)},
                         push, groups_for(push.lines, 1));
}

// --- gather(x, numbers) ---

int64_t entries_of_gather(const NodeCall& call) { return call.in(0).info->shape[axis_of(call)]; }

std::string refuses_gather(const NodeCall& call, const DeviceInfo&) {
  const Tensor &x = call.in(0), &numbers = call.in(1);
  for (size_t i = 0; i < x.rank; ++i) {
    if (i != axis_of(call) && x.shape[i] != numbers.shape[i])
      return "the GPU takes entries of all lines of an axis, not of some";
  }
  return {};
}

void prepare_gather(const NodeCall& call, Work&) {
  check_entries(call.in(1), call.in(0).shape[axis_of(call)], "entry");
}

void record_gather(const NodeCall& call, Work& work) {
  const Tensor &x = call.in(0), &numbers = call.in(1), &y = *call.output;
  const View from = work.view(x), places = work.view(numbers), to = work.view(y);
  const struct {
    uint32_t count, inner, have, taken, x_first, numbers_first, y_first;
  } push{word(y.elements()),
         word(y.product(axis_of(call) + 1, y.rank)),
         word(x.shape[axis_of(call)]),
         word(y.shape[axis_of(call)]),
         from.first,
         places.first,
         to.first};
  work.recorder.dispatch("gather", {}, {from, places, written(to)}, push,
                         groups_for(push.count, 256));
}

const VulkanOp kOps[] = {
    {"argsort", refuses_argsort, record_argsort},
    {.name = "gather",
     .refuses = refuses_gather,
     .record = record_gather,
     .prepare = prepare_gather,
     .entries = entries_of_gather},
};

}  // namespace

std::span<const VulkanOp> entry_ops() { return kOps; }

}  // namespace satchel::vulkan
