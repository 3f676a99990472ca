// Ops that choose some of what there is: the places where a mask holds, boxes that do not overlap.
#include <algorithm>

#include "../cpu_op.h"
#include "../errors.h"

namespace satchel {

namespace {

// --- nonzero(mask): the places of what is true; how many, only the run tells ---

void check_nonzero(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  require_array(call, x, DType::boolean);
  require_array(call, y, DType::i32);
  // The output has the most rows that there can be, until the run has counted them.
  require(x.rank == 1 && y.rank == 1 && x.shape[0] <= INT32_MAX, call, "the output does not fit");
}

void run_nonzero(const NodeCall& call, const Workspace&) {
  const Tensor& x = call.in(0);
  Tensor& y = *call.output;
  int64_t found = 0;
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    if (!x.data[i]) continue;
    if (found == y.shape[0]) throw ExecutionError("more was chosen than there is room for");
    y.i32()[found++] = static_cast<int32_t>(i);
  }
  y.shape[0] = found;
}

// --- nms(boxes): which boxes overlap none of their kind that is kept before them ---

void check_nms(NodeCall& call) {
  const Tensor &boxes = call.in(0), &y = *call.output;
  require_array(call, boxes, DType::f32);
  require_array(call, y, DType::boolean);
  const bool fits = boxes.rank == 2 && (boxes.shape[1] == 4 || boxes.shape[1] == 5);
  require(fits && y.rank == 1 && y.shape[0] == boxes.shape[0], call, "the output does not fit");
  call.params.number[0] = number_attribute(call, "threshold");
}

float area(const float* box) { return (box[2] - box[0]) * (box[3] - box[1]); }

float overlap(const float* a, const float* b) {
  const float width = std::max(0.0f, std::min(a[2], b[2]) - std::max(a[0], b[0]));
  const float height = std::max(0.0f, std::min(a[3], b[3]) - std::max(a[1], b[1]));
  const float both = width * height;
  return both / (area(a) + area(b) - both);
}

void run_nms(const NodeCall& call, const Workspace&) {
  const float* boxes = call.in(0).f32();
  const int64_t count = call.in(0).shape[0], width = call.in(0).shape[1];
  uint8_t* keeps = call.output->data;
  std::fill_n(keeps, count, uint8_t{1});
  for (int64_t i = 0; i < count; ++i) {
    if (!keeps[i]) continue;
    const float* one = boxes + width * i;
    for (int64_t j = i + 1; j < count; ++j) {
      const float* other = boxes + width * j;
      if (!keeps[j] || (width == 5 && one[4] != other[4])) continue;
      if (overlap(one, other) > call.params.number[0]) keeps[j] = 0;
    }
  }
}

const OpDef kOps[] = {
    {{.name = "nonzero",
      .min_inputs = 1,
      .max_inputs = 1,
      .writes_state = false,
      .attributes = {"size"},
      .check = check_nonzero,
      .decides_size = true,
      .takes_empty = true},
     {run_nonzero}},
    {{"nms", 1, 1, false, {"threshold"}, check_nms}, {run_nms}},
};

}  // namespace

std::span<const OpDef> choose_ops() { return kOps; }

}  // namespace satchel
