// Ops that work on each element alone.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "../broadcast.h"
#include "../errors.h"
#include "../cpu_op.h"

namespace satchel {

namespace {

constexpr int64_t kSmallestPiece = 4096;

// --- unary ---

void check_unary(NodeCall& call) {
  require_array(call, call.in(0), DType::f32);
  require_array(call, *call.output, DType::f32);
  require(same_shape(call.in(0), *call.output), call, "the output does not fit");
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
void check_number_binary(NodeCall& call) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  require(y.dtype == DType::f32 || is_whole(y.dtype), call, "the operands must be f32, i32 or i64");
  for (const Tensor* t : {&a, &b, &y}) require_array(call, *t, y.dtype);
  require_broadcast(call, {&a, &b});
}

void check_binary(NodeCall& call) {
  require_array(call, *call.output, DType::f32);
  check_number_binary(call);
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

// Whether a function of whole numbers was applied; it is given the unsigned type, which wraps.
template <typename Function>
bool combine_whole(const NodeCall& call, const Workspace& work, Function function) {
  if (call.output->dtype == DType::i32) {
    combine<uint32_t>(call, work, function);
  } else if (call.output->dtype == DType::i64) {
    combine<uint64_t>(call, work, function);
  }
  return is_whole(call.output->dtype);
}

void run_add(const NodeCall& call, const Workspace& work) {
  if (combine_whole(call, work, [](auto a, auto b) { return a + b; })) return;
  if (all_same(call)) return run_same_shape(call, work, work.kernels.add);
  combine(call, work, [](float a, float b) { return a + b; });
}

void run_mul(const NodeCall& call, const Workspace& work) {
  if (combine_whole(call, work, [](auto a, auto b) { return a * b; })) return;
  if (all_same(call)) return run_same_shape(call, work, work.kernels.mul);
  combine(call, work, [](float a, float b) { return a * b; });
}

void check_gated(NodeCall& call) {
  for (const Tensor* t : {&call.in(0), &call.in(1), static_cast<const Tensor*>(call.output)}) {
    require_array(call, *t, DType::f32);
  }
  require(all_same(call), call, "the shapes must be the same");
}

// --- affine, cast ---

void check_affine(NodeCall& call) {
  call.params.number[0] = number_attribute(call, "scale", 1.0);
  call.params.number[1] = number_attribute(call, "shift", 0.0);
  check_unary(call);
}

void check_clamp(NodeCall& call) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  call.params.number[0] = number_attribute(call, "low", -infinity);
  call.params.number[1] = number_attribute(call, "high", infinity);
  require(call.params.number[0] <= call.params.number[1], call,
          "the lower bound is above the upper");
  check_unary(call);
}

void check_cast(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  for (const Tensor* t : {&x, &y}) {
    require(t->dtype == DType::f32 || t->dtype == DType::f16 || is_whole(t->dtype) ||
                t->dtype == DType::boolean,
            call, "no cast of this dtype");
    require_array(call, *t, t->dtype);
  }
  const char* name = y.dtype == DType::boolean ? "boolean" : dtype_name(y.dtype);
  require(text_attribute(call, "dtype", "") == name, call, "the output is of another dtype");
  require(same_shape(x, y), call, "the output does not fit");
  call.params.integer[0] = int_attribute(call, "checked", 0);
  require(!call.params.integer[0] || (x.dtype == DType::i64 && y.dtype == DType::i32), call,
          "only a cast from i64 to i32 can be checked");
}

// Truncates and saturates; NaN is 0.
template <typename T>
T to_whole(float x) {
  constexpr float kBeyond = sizeof(T) == 4 ? 2147483648.0f : 9223372036854775808.0f;
  if (std::isnan(x)) return 0;
  if (x >= kBeyond) return std::numeric_limits<T>::max();
  if (x <= -kBeyond) return std::numeric_limits<T>::min();
  return static_cast<T>(x);
}

// From any type but f16 to any but f16.
template <typename From, typename To>
void cast_each(const Tensor& x, const Tensor& y, int64_t count) {
  const From* from = reinterpret_cast<const From*>(x.data);
  To* to = reinterpret_cast<To*>(y.data);
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<From, float> && std::is_integral_v<To> && sizeof(To) >= 4) {
      to[i] = to_whole<To>(from[i]);
    } else if constexpr (sizeof(To) == 1) {
      to[i] = from[i] != 0;
    } else if constexpr (sizeof(From) == 1) {
      to[i] = static_cast<To>(from[i] != 0);
    } else {
      to[i] = static_cast<To>(from[i]);
    }
  }
}

template <typename From>
void cast_from(const Tensor& x, const Tensor& y, int64_t count) {
  switch (y.dtype) {
    case DType::i32:
      return cast_each<From, int32_t>(x, y, count);
    case DType::i64:
      return cast_each<From, int64_t>(x, y, count);
    case DType::boolean:
      return cast_each<From, uint8_t>(x, y, count);
    default:
      return cast_each<From, float>(x, y, count);
  }
}

void require_32_bits(const Tensor& x, int64_t count) {
  const auto* from = reinterpret_cast<const int64_t*>(x.data);
  for (int64_t i = 0; i < count; ++i) {
    if (from[i] != static_cast<int32_t>(from[i])) {
      throw ExecutionError("there is no entry " + std::to_string(from[i]));
    }
  }
}

// Halves go through floats, one at a time where the other side is neither.
void run_cast(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const int64_t count = y.elements();
  const KernelTable& k = work.kernels;
  if (call.params.integer[0]) require_32_bits(x, count);
  if (x.dtype == y.dtype) {
    std::memcpy(y.data, x.data, static_cast<size_t>(count) * dtype_size(x.dtype));
  } else if (x.dtype == DType::f32 && y.dtype == DType::f16) {
    k.float_to_half(x.f32(), count, y.f16());
  } else if (x.dtype == DType::f16 && y.dtype == DType::f32) {
    k.half_to_float(x.f16(), count, y.f32());
  } else if (x.dtype == DType::f16 || y.dtype == DType::f16) {
    Tensor one_x = x, one_y = y, wide;
    float number = 0.0f;
    wide.dtype = DType::f32;
    wide.data = reinterpret_cast<uint8_t*>(&number);
    for (int64_t i = 0; i < count; ++i) {
      one_x.data = x.data + static_cast<size_t>(i) * dtype_size(x.dtype);
      one_y.data = y.data + static_cast<size_t>(i) * dtype_size(y.dtype);
      if (x.dtype == DType::f16) {
        k.half_to_float(one_x.f16(), 1, &number);
        cast_from<float>(wide, one_y, 1);
      } else {
        x.dtype == DType::i32   ? cast_from<int32_t>(one_x, wide, 1)
        : x.dtype == DType::i64 ? cast_from<int64_t>(one_x, wide, 1)
                                : cast_from<uint8_t>(one_x, wide, 1);
        k.float_to_half(&number, 1, one_y.f16());
      }
    }
  } else if (x.dtype == DType::i32) {
    cast_from<int32_t>(x, y, count);
  } else if (x.dtype == DType::i64) {
    cast_from<int64_t>(x, y, count);
  } else if (x.dtype == DType::boolean) {
    cast_from<uint8_t>(x, y, count);
  } else {
    cast_from<float>(x, y, count);
  }
}

// The inverse of the error function: Winitzki's formula as a start, and Halley's steps.
float inverse_erf(float x) {
  if (!(std::fabs(x) < 1.0f)) {
    if (std::fabs(x) == 1.0f) return std::copysign(std::numeric_limits<float>::infinity(), x);
    return std::numeric_limits<float>::quiet_NaN();
  }
  const double y = x, w = -std::log((1.0 - y) * (1.0 + y));
  constexpr double kA = 0.147, kPi = 3.14159265358979323846;
  const double t = 2.0 / (kPi * kA) - w / 2.0;
  double z = std::copysign(std::sqrt(std::max(0.0, std::sqrt(t * t + w / kA) - t)), y);
  for (int i = 0; i < 3; ++i) {
    const double off = (std::fabs(y) < 0.5 ? std::erf(z) - y
                                           : std::copysign(1.0 - std::fabs(y), y) -
                                                 std::copysign(std::erfc(std::fabs(z)), z)) /
                       (2.0 / std::sqrt(kPi) * std::exp(-z * z));
    z -= off / (1.0 + z * off);
  }
  return static_cast<float>(z);
}

#define UNARY(name, expression)                                            \
  {                                                                        \
    {name, 1, 1, false, {}, check_unary}, {                                \
      [](const NodeCall& call, const Workspace& work) {                    \
        for_each(call, work, [](float x) -> float { return expression; }); \
      }                                                                    \
    }                                                                      \
  }
#define ACTIVATION(name)                                \
  {                                                     \
    {#name, 1, 1, false, {}, check_unary}, {            \
      [](const NodeCall& call, const Workspace& work) { \
        run_activation(call, work, Activation::name);   \
      }                                                 \
    }                                                   \
  }
#define BINARY(name, expression)                                                   \
  {                                                                                \
    {name, 2, 2, false, {}, check_binary}, {                                       \
      [](const NodeCall& call, const Workspace& work) {                            \
        combine(call, work, [](float a, float b) -> float { return expression; }); \
      }                                                                            \
    }                                                                              \
  }

#define NUMBER_BINARY(name, whole, expression)                                       \
  {                                                                                  \
    {name, 2, 2, false, {}, check_number_binary}, {                                  \
      [](const NodeCall& call, const Workspace& work) {                              \
        if (combine_whole(call, work, [](auto a, auto b) {                           \
              using S = std::make_signed_t<decltype(a)>;                             \
              [[maybe_unused]] const S x = static_cast<S>(a), y = static_cast<S>(b); \
              return static_cast<decltype(a)>(whole);                                \
            }))                                                                      \
          return;                                                                    \
        combine(call, work, [](float a, float b) -> float { return expression; });   \
      }                                                                              \
    }                                                                                \
  }

const OpDef kOps[] = {
    UNARY("neg", -x),
    UNARY("abs", std::fabs(x)),
    UNARY("exp", std::exp(x)),
    UNARY("log", std::log(x)),
    UNARY("sqrt", std::sqrt(x)),
    UNARY("rsqrt", 1.0f / std::sqrt(x)),
    UNARY("sin", std::sin(x)),
    UNARY("cos", std::cos(x)),
    UNARY("tan", std::tan(x)),
    UNARY("asin", std::asin(x)),
    UNARY("acos", std::acos(x)),
    UNARY("atan", std::atan(x)),
    UNARY("sinh", std::sinh(x)),
    UNARY("cosh", std::cosh(x)),
    UNARY("asinh", std::asinh(x)),
    UNARY("acosh", std::acosh(x)),
    UNARY("atanh", std::atanh(x)),
    UNARY("exp2", std::exp2(x)),
    UNARY("expm1", std::expm1(x)),
    UNARY("log1p", std::log1p(x)),
    UNARY("log2", std::log2(x)),
    UNARY("log10", std::log10(x)),
    UNARY("erfinv", inverse_erf(x)),
    UNARY("trunc", std::trunc(x)),
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
    {{"add", 2, 2, false, {}, check_number_binary}, {run_add}},
    {{"mul", 2, 2, false, {}, check_number_binary}, {run_mul}},
    NUMBER_BINARY("sub", a - b, a - b),
    BINARY("div", a / b),
    NUMBER_BINARY("maximum", std::max(x, y), std::isnan(a) || a > b ? a : b),
    NUMBER_BINARY("minimum", std::min(x, y), std::isnan(a) || a < b ? a : b),
    BINARY("pow", std::pow(a, b)),
    BINARY("atan2", std::atan2(a, b)),
    BINARY("fmod", std::fmod(a, b)),
    {{"silu_mul", 2, 2, false, {}, check_gated}, {[](const NodeCall& call, const Workspace& work) {
       run_same_shape(call, work, work.kernels.silu_mul);
     }}},
    {{"gelu_tanh_mul", 2, 2, false, {}, check_gated},
     {[](const NodeCall& call, const Workspace& work) {
       run_same_shape(call, work, work.kernels.gelu_tanh_mul);
     }}},
    {{"affine", 1, 1, false, {"scale", "shift"}, check_affine},
     {[](const NodeCall& call, const Workspace& work) {
       const auto scale = static_cast<float>(call.params.number[0]),
                  shift = static_cast<float>(call.params.number[1]);
       for_each(call, work, [=](float x) { return x * scale + shift; });
     }}},
    {{"clamp", 1, 1, false, {"low", "high"}, check_clamp},
     {[](const NodeCall& call, const Workspace& work) {
       const auto low = static_cast<float>(call.params.number[0]),
                  high = static_cast<float>(call.params.number[1]);
       for_each(call, work, [=](float x) { return x < low ? low : x > high ? high : x; });
     }}},
    {{"cast", 1, 1, false, {"dtype", "checked"}, check_cast}, {run_cast}},
};

#undef UNARY
#undef ACTIVATION
#undef BINARY
#undef NUMBER_BINARY

}  // namespace

std::span<const OpDef> elementwise_ops() { return kOps; }

}  // namespace satchel
