// Functions of two whole numbers that floats do not have, or do not have exactly.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "../broadcast.h"
#include "../errors.h"
#include "../cpu_op.h"

namespace satchel {

namespace {

constexpr const char* kKinds[] = {"and", "or",        "xor",       "shl",       "shr",
                                  "pow", "floor_div", "trunc_div", "remainder", "fmod"};
constexpr int64_t kFirstDivision = 6;
constexpr int64_t kSmallestPiece = 4096;

void check_integer(NodeCall& call) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  require(is_whole(y.dtype), call, "the operands must be i32 or i64");
  for (const Tensor* t : {&a, &b, &y}) require_array(call, *t, y.dtype);
  require_broadcast(call, {&a, &b});
  const std::string kind = text_attribute(call, "kind", "");
  const auto found = std::find(std::begin(kKinds), std::end(kKinds), kind);
  require(found != std::end(kKinds), call, "there is no such function");
  call.params.integer[0] = found - std::begin(kKinds);
}

// The lowest number by -1 would trap: its quotient wraps around to itself, and nothing is left.
template <typename T>
T quotient(T a, T b) {
  return b == -1 ? static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a))
                 : static_cast<T>(a / b);
}
template <typename T>
T left_over(T a, T b) {
  return b == -1 ? 0 : static_cast<T>(a % b);
}

template <typename T>
T power(T base, T exponent) {
  using U = std::make_unsigned_t<T>;
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  U result = 1, square = static_cast<U>(base);
  for (U left = static_cast<U>(exponent); left; left >>= 1, square *= square) {
    if (left & 1) result *= square;
  }
  return static_cast<T>(result);
}

template <typename T>
T apply(int64_t kind, T a, T b) {
  using U = std::make_unsigned_t<T>;
  constexpr T kBits = std::numeric_limits<U>::digits;
  switch (kind) {
    case 0:
      return a & b;
    case 1:
      return a | b;
    case 2:
      return a ^ b;
    case 3:
      return b < 0 || b >= kBits ? 0 : static_cast<T>(static_cast<U>(a) << b);
    case 4:
      return a >> (b < 0 || b >= kBits ? kBits - 1 : b);
    case 5:
      return power(a, b);
    case 6: {
      const T whole = quotient(a, b);
      return left_over(a, b) != 0 && (a < 0) != (b < 0) ? whole - 1 : whole;
    }
    case 7:
      return quotient(a, b);
    case 8: {
      const T rest = left_over(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    default:
      return left_over(a, b);
  }
}

template <typename T>
void run_of(const NodeCall& call, const Workspace& work) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  const int64_t kind = call.params.integer[0], width = y.last(), rows = y.elements() / width;
  const T* divisors = reinterpret_cast<const T*>(b.data);
  if (kind >= kFirstDivision &&
      std::find(divisors, divisors + b.elements(), T{0}) != divisors + b.elements()) {
    throw ExecutionError("a whole number is divided by zero");
  }
  int64_t step_a[kMaxRank] = {}, step_b[kMaxRank] = {};
  broadcast_strides(a, y, step_a);
  broadcast_strides(b, y, step_b);
  const int64_t inner_a = y.rank ? step_a[y.rank - 1] : 0,
                inner_b = y.rank ? step_b[y.rank - 1] : 0;
  work.pool.parallel_for(
      rows, std::max<int64_t>(1, kSmallestPiece / width), [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          const T* left = reinterpret_cast<const T*>(a.data) + row_offset(y, step_a, row);
          const T* right = divisors + row_offset(y, step_b, row);
          T* out = reinterpret_cast<T*>(y.data) + row * width;
          for (int64_t i = 0; i < width; ++i)
            out[i] = apply<T>(kind, left[i * inner_a], right[i * inner_b]);
        }
      });
}

void run_integer(const NodeCall& call, const Workspace& work) {
  call.output->dtype == DType::i32 ? run_of<int32_t>(call, work) : run_of<int64_t>(call, work);
}

const OpDef kOps[] = {
    {{"integer", 2, 2, false, {"kind"}, check_integer}, {run_integer}},
};

}  // namespace

std::span<const OpDef> integer_ops() { return kOps; }

}  // namespace satchel
