// The Walsh-Hadamard transform in blocks of the last dimension.
#include <algorithm>
#include <cmath>

#include "../cpu_op.h"

namespace satchel {

namespace {

void check_hadamard(NodeCall& call) {
  const Tensor& x = call.in(0);
  require_array(call, x, DType::f32);
  require_array(call, *call.output, DType::f32);
  require(x.rank >= 1 && same_shape(x, *call.output), call, "the output does not fit");
  const int64_t block = int_attribute(call, "block");
  require(block >= 1 && (block & (block - 1)) == 0, call, "the block is no power of two");
  require(x.last() % block == 0, call, "the blocks do not fit");
  call.params.integer[0] = block;
}

// Sums and differences of values 1, 2, 4, … apart, in place.
void transform(float* x, int64_t size) {
  for (int64_t half = 1; half < size; half *= 2) {
    for (int64_t at = 0; at < size; at += 2 * half) {
      float *low = x + at, *high = x + at + half;
      for (int64_t i = 0; i < half; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

void run_hadamard(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const int64_t size = call.params.integer[0], blocks = x.elements() / size;
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  const int64_t smallest = std::max<int64_t>(1, 1024 / size);
  work.pool.parallel_for(blocks, grain_for(blocks, work.pool.size(), smallest),
                         [&](int64_t begin, int64_t end, int) {
                           for (int64_t block = begin; block < end; ++block) {
                             const float* from = x.f32() + block * size;
                             float* to = y.f32() + block * size;
                             for (int64_t i = 0; i < size; ++i) to[i] = from[i] * scale;
                             transform(to, size);
                           }
                         });
}

const OpDef kOps[] = {
    {{"hadamard", 1, 1, false, {"block"}, check_hadamard}, {run_hadamard}},
};

}  // namespace

std::span<const OpDef> hadamard_ops() { return kOps; }

}  // namespace satchel
