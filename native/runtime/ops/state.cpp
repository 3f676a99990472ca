// state_write(state, x): the state's memory becomes x.
#include <cstring>

#include "../cpu_op.h"

namespace satchel {

namespace {

void check_state_write(NodeCall& call) {
  const Tensor &state = call.in(0), &x = call.in(1);
  require_array(call, x, state.dtype);
  require(same_shape(state, x) && same_shape(state, *call.output), call, "the sizes do not fit");
}

void run_state_write(const NodeCall& call, const Workspace&) {
  const Tensor& x = call.in(1);
  std::memmove(call.output->data, x.data, static_cast<size_t>(x.elements()) * dtype_size(x.dtype));
}

const OpDef kOps[] = {
    {{"state_write", 2, 2, true, {}, check_state_write}, {run_state_write}},
};

}  // namespace

std::span<const OpDef> state_ops() { return kOps; }

}  // namespace satchel
