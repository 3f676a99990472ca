// Ops that work on each element alone.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "../broadcast.h"
#include "../op.h"

namespace satchel {

namespace {

constexpr int64_t kSmallestPiece = 4096;

// --- unary ---

size_t check_unary(NodeCall& call, int) {
  require_array(call, call.in(0), DType::f32);
  require_array(call, *call.output, DType::f32);
  require(same_shape(call.in(0), *call.output), call, "the output does not fit");
  return 0;
}

template <typename Function>
void for_each(const NodeCall& call, const Workspace& work, Function function) {
  const float* x = call.in(0).f32();
  float* y = call.output->f32();
  work.pool.parallel_for(call.output->elements(), kSmallestPiece,
                         [&](int64_t begin, int64_t end, int) {
                           for (int64_t i = begin; i < end; ++i) y[i] = function(x[i]);
                         });
}

// The functions that layers apply too, at the width of the CPU's registers.
void run_activation(const NodeCall& call, const Workspace& work, Activation activation) {
  const float* x = call.in(0).f32();
  float* y = call.output->f32();
  work.pool.parallel_for(call.output->elements(), kSmallestPiece,
                         [&](int64_t begin, int64_t end, int) {
                           work.kernels.activate(activation, x + begin, end - begin, y + begin);
                         });
}

// --- binary with broadcasting ---

// Whole numbers wrap around, as those of numpy do.
size_t check_number_binary(NodeCall& call, int) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  require(y.dtype == DType::f32 || y.dtype == DType::i32, call, "the operands must be f32 or i32");
  for (const Tensor* t : {&a, &b, &y}) require_array(call, *t, y.dtype);
  require_broadcast(call, {&a, &b});
  return 0;
}

size_t check_binary(NodeCall& call, int threads) {
  require_array(call, *call.output, DType::f32);
  return check_number_binary(call, threads);
}

template <typename T = float, typename Function>
void combine(const NodeCall& call, const Workspace& work, Function function) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  int64_t step_a[kMaxRank] = {}, step_b[kMaxRank] = {};
  broadcast_strides(a, y, step_a);
  broadcast_strides(b, y, step_b);
  const int64_t width = y.last(), rows = width ? y.elements() / width : 0;
  const int64_t inner_a = y.rank ? step_a[y.rank - 1] : 0,
                inner_b = y.rank ? step_b[y.rank - 1] : 0;
  const bool few = stays_on_one_thread(rows, static_cast<double>(y.elements()) * 64);
  const int64_t grain =
      few ? rows : std::max<int64_t>(1, kSmallestPiece / std::max<int64_t>(1, width));
  work.pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t at_a = 0, at_b = 0, rest = row;
      for (size_t i = y.rank - (y.rank > 0); i-- > 0;) {
        const int64_t index = rest % y.shape[i];
        rest /= y.shape[i];
        at_a += index * step_a[i];
        at_b += index * step_b[i];
      }
      const T *left = reinterpret_cast<const T*>(a.data) + at_a,
              *right = reinterpret_cast<const T*>(b.data) + at_b;
      T* out = reinterpret_cast<T*>(y.data) + row * width;
      if (inner_a == 1 && inner_b == 1) {  // a loop of its own, which the compiler makes vectors of
        for (int64_t i = 0; i < width; ++i) out[i] = function(left[i], right[i]);
      } else {
        for (int64_t i = 0; i < width; ++i)
          out[i] = function(left[i * inner_a], right[i * inner_b]);
      }
    }
  });
}

using SameShapeKernel = void (*)(const float*, const float*, int64_t, float*);

void run_same_shape(const NodeCall& call, const Workspace& work, SameShapeKernel kernel) {
  const float *a = call.in(0).f32(), *b = call.in(1).f32();
  work.pool.parallel_for(call.output->elements(), kSmallestPiece,
                         [&](int64_t begin, int64_t end, int) {
                           kernel(a + begin, b + begin, end - begin, call.output->f32() + begin);
                         });
}

bool all_same(const NodeCall& call) {
  return same_shape(call.in(0), call.in(1)) && same_shape(call.in(0), *call.output);
}

bool is_whole(const NodeCall& call) { return call.output->dtype == DType::i32; }

void run_add(const NodeCall& call, const Workspace& work) {
  if (is_whole(call))
    return combine<uint32_t>(call, work, [](uint32_t a, uint32_t b) { return a + b; });
  if (all_same(call)) return run_same_shape(call, work, work.kernels.add);
  combine(call, work, [](float a, float b) { return a + b; });
}

void run_mul(const NodeCall& call, const Workspace& work) {
  if (is_whole(call))
    return combine<uint32_t>(call, work, [](uint32_t a, uint32_t b) { return a * b; });
  if (all_same(call)) return run_same_shape(call, work, work.kernels.mul);
  combine(call, work, [](float a, float b) { return a * b; });
}

size_t check_gated(NodeCall& call, int) {
  for (const Tensor* t : {&call.in(0), &call.in(1), static_cast<const Tensor*>(call.output)}) {
    require_array(call, *t, DType::f32);
  }
  require(all_same(call), call, "the shapes must be the same");
  return 0;
}

// --- affine, cast ---

size_t check_affine(NodeCall& call, int threads) {
  call.params.number[0] = number_attribute(call, "scale", 1.0);
  call.params.number[1] = number_attribute(call, "shift", 0.0);
  return check_unary(call, threads);
}

size_t check_clamp(NodeCall& call, int threads) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  call.params.number[0] = number_attribute(call, "low", -infinity);
  call.params.number[1] = number_attribute(call, "high", infinity);
  require(call.params.number[0] <= call.params.number[1], call,
          "the lower bound is above the upper");
  return check_unary(call, threads);
}

size_t check_cast(NodeCall& call, int) {
  const Tensor &x = call.in(0), &y = *call.output;
  for (const Tensor* t : {&x, &y}) {
    require(t->dtype == DType::f32 || t->dtype == DType::f16 || t->dtype == DType::i32 ||
                t->dtype == DType::boolean,
            call, "no cast of this dtype");
    require_array(call, *t, t->dtype);
  }
  const char* name = y.dtype == DType::boolean ? "boolean" : dtype_name(y.dtype);
  require(text_attribute(call, "dtype", "") == name, call, "the output is of another dtype");
  require(same_shape(x, y), call, "the output does not fit");
  return 0;
}

int32_t to_i32(float x) {
  if (std::isnan(x)) return 0;
  if (x >= 2147483648.0f) return INT32_MAX;
  if (x <= -2147483648.0f) return INT32_MIN;
  return static_cast<int32_t>(x);
}

void run_cast(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const int64_t count = y.elements();
  const KernelTable& k = work.kernels;
  if (x.dtype == y.dtype) {
    std::memcpy(y.data, x.data, static_cast<size_t>(count) * dtype_size(x.dtype));
  } else if (x.dtype == DType::f32 && y.dtype == DType::f16) {
    k.float_to_half(x.f32(), count, y.f16());
  } else if (x.dtype == DType::f16 && y.dtype == DType::f32) {
    k.half_to_float(x.f16(), count, y.f32());
  } else {
    for (int64_t i = 0; i < count; ++i) {
      float wide;
      if (x.dtype == DType::boolean) {
        wide = x.data[i] != 0 ? 1.0f : 0.0f;
      } else if (x.dtype == DType::i32) {
        wide = static_cast<float>(x.i32()[i]);
      } else if (x.dtype == DType::f32) {
        wide = x.f32()[i];
      } else {
        k.half_to_float(x.f16() + i, 1, &wide);
      }
      if (y.dtype == DType::boolean) {
        y.data[i] = x.dtype == DType::i32 ? x.i32()[i] != 0 : wide != 0.0f;
      } else if (y.dtype == DType::i32) {
        y.i32()[i] = to_i32(wide);
      } else if (y.dtype == DType::f32) {
        y.f32()[i] = wide;
      } else {
        k.float_to_half(&wide, 1, y.f16() + i);
      }
    }
  }
}

#define UNARY(name, expression)                                                          \
  {name, 1, 1, false, {}, check_unary, [](const NodeCall& call, const Workspace& work) { \
     for_each(call, work, [](float x) -> float { return expression; });                  \
   }}
#define ACTIVATION(name)                                                                  \
  {#name, 1, 1, false, {}, check_unary, [](const NodeCall& call, const Workspace& work) { \
     run_activation(call, work, Activation::name);                                        \
   }}
#define BINARY(name, expression)                                                          \
  {name, 2, 2, false, {}, check_binary, [](const NodeCall& call, const Workspace& work) { \
     combine(call, work, [](float a, float b) -> float { return expression; });           \
   }}

#define NUMBER_BINARY(name, whole, expression)                                                     \
  {name, 2, 2, false, {}, check_number_binary, [](const NodeCall& call, const Workspace& work) {   \
     if (is_whole(call)) {                                                                         \
       return combine<int32_t>(call, work, [](int32_t a, int32_t b) -> int32_t { return whole; }); \
     }                                                                                             \
     combine(call, work, [](float a, float b) -> float { return expression; });                    \
   }}

const OpDef kOps[] = {
    UNARY("neg", -x),
    UNARY("abs", std::fabs(x)),
    UNARY("exp", std::exp(x)),
    UNARY("log", std::log(x)),
    UNARY("sqrt", std::sqrt(x)),
    UNARY("rsqrt", 1.0f / std::sqrt(x)),
    UNARY("sin", std::sin(x)),
    UNARY("cos", std::cos(x)),
    ACTIVATION(tanh),
    UNARY("erf", std::erf(x)),
    UNARY("floor", std::floor(x)),
    UNARY("round", std::nearbyint(x)),
    ACTIVATION(hardsigmoid),
    ACTIVATION(hardswish),
    ACTIVATION(relu),
    ACTIVATION(sigmoid),
    ACTIVATION(silu),
    ACTIVATION(gelu),
    ACTIVATION(gelu_tanh),
    {"add", 2, 2, false, {}, check_number_binary, run_add},
    {"mul", 2, 2, false, {}, check_number_binary, run_mul},
    NUMBER_BINARY("sub", static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b)),
                  a - b),
    BINARY("div", a / b),
    NUMBER_BINARY("maximum", std::max(a, b), std::isnan(a) || a > b ? a : b),
    NUMBER_BINARY("minimum", std::min(a, b), std::isnan(a) || a < b ? a : b),
    BINARY("pow", std::pow(a, b)),
    {"silu_mul",
     2,
     2,
     false,
     {},
     check_gated,
     [](const NodeCall& call, const Workspace& work) {
       run_same_shape(call, work, work.kernels.silu_mul);
     }},
    {"gelu_tanh_mul",
     2,
     2,
     false,
     {},
     check_gated,
     [](const NodeCall& call, const Workspace& work) {
       run_same_shape(call, work, work.kernels.gelu_tanh_mul);
     }},
    {"affine",
     1,
     1,
     false,
     {"scale", "shift"},
     check_affine,
     [](const NodeCall& call, const Workspace& work) {
       const auto scale = static_cast<float>(call.params.number[0]),
                  shift = static_cast<float>(call.params.number[1]);
       for_each(call, work, [=](float x) { return x * scale + shift; });
     }},
    {"clamp",
     1,
     1,
     false,
     {"low", "high"},
     check_clamp,
     [](const NodeCall& call, const Workspace& work) {
       const auto low = static_cast<float>(call.params.number[0]),
                  high = static_cast<float>(call.params.number[1]);
       for_each(call, work, [=](float x) { return x < low ? low : x > high ? high : x; });
     }},
    {"cast", 1, 1, false, {"dtype"}, check_cast, run_cast},
};

#undef UNARY
#undef ACTIVATION
#undef BINARY
#undef NUMBER_BINARY

}  // namespace

std::span<const OpDef> elementwise_ops() { return kOps; }

}  // namespace satchel
