// Ops that walk along one axis: count, scatter, argsort, cumulate.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "../errors.h"
#include "../cpu_op.h"

namespace satchel {

namespace {

constexpr int64_t kSmallestPiece = 4096;

size_t axis_of(const NodeCall& call, const Tensor& x) {
  const int64_t axis = int_attribute(call, "axis");
  require(axis >= 0 && axis < static_cast<int64_t>(x.rank), call, "there is no such axis");
  return static_cast<size_t>(axis);
}

template <size_t N>
int64_t kind_of(const NodeCall& call, const char* const (&kinds)[N]) {
  const std::string kind = text_attribute(call, "kind", "");
  const auto found = std::find(std::begin(kinds), std::end(kinds), kind);
  require(found != std::end(kinds), call, "there is no such kind");
  return found - std::begin(kinds);
}

// Calls line(first element, step, thread) for every line of x along an axis.
template <typename Line>
void for_lines(const Tensor& x, size_t axis, const Workspace& work, Line line) {
  const int64_t inner = x.product(axis + 1, x.rank), count = x.shape[axis];
  work.pool.parallel_for(x.product(0, axis) * inner, std::max<int64_t>(1, kSmallestPiece / count),
                         [&](int64_t begin, int64_t end, int thread) {
                           for (int64_t i = begin; i < end; ++i)
                             line(i / inner * count * inner + i % inner, inner, thread);
                         });
}

template <typename Function>
void of_numbers(DType dtype, Function function) {
  dtype == DType::f32   ? function(float{})
  : dtype == DType::i32 ? function(int32_t{})
                        : function(int64_t{});
}

template <typename T>
bool is_nan(T x) {
  return x != x;
}

// Whole numbers wrap around; of floats, NaN is the greatest and the least.
template <typename T>
T joined(int64_t kind, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    if (kind == 0) return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    if (kind == 1) return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
  switch (kind) {
    case 0:
      return a + b;
    case 1:
      return a * b;
    case 2:
      return is_nan(a) || a > b ? a : b;
    default:
      return is_nan(a) || a < b ? a : b;
  }
}

// --- scatter(x, numbers, source): x with the source's elements put to, or joined with, others ---

constexpr const char* kScatterKinds[] = {"add", "mul", "max", "min", "set"};
constexpr int64_t kSet = 4;

void check_scatter(NodeCall& call) {
  const Tensor &x = call.in(0), &numbers = call.in(1), &source = call.in(2), &y = *call.output;
  require(y.dtype == DType::f32 || is_whole(y.dtype), call, "x must be f32, i32 or i64");
  require_array(call, x, y.dtype);
  require_array(call, source, y.dtype);
  require_array(call, numbers, DType::i32);
  const size_t axis = axis_of(call, x);
  require(same_shape(x, y) && same_shape(numbers, source) && numbers.rank == x.rank, call,
          "the shapes do not fit");
  for (size_t i = 0; i < x.rank; ++i) {
    require(i == axis || numbers.shape[i] <= x.shape[i], call, "there are too many numbers");
  }
  call.params.integer[0] = static_cast<int64_t>(axis);
  call.params.integer[1] = kind_of(call, kScatterKinds);
}

void run_scatter(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &numbers = call.in(1), &source = call.in(2), &y = *call.output;
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  const int64_t kind = call.params.integer[1], entries = x.shape[axis];
  for (int64_t i = 0; i < numbers.elements(); ++i) {
    const int32_t number = numbers.i32()[i];
    if (number < 0 || number >= entries) {
      throw ExecutionError("there is no entry " + std::to_string(number) + " among " +
                           std::to_string(entries));
    }
  }
  std::memcpy(y.data, x.data, static_cast<size_t>(x.elements()) * dtype_size(x.dtype));
  if (numbers.elements() == 0) return;
  int64_t steps[kMaxRank] = {};
  for (size_t i = 0; i < x.rank; ++i) steps[i] = x.product(i + 1, x.rank);
  // Lines of numbers along the axis are independent: no two of them write to the same place.
  of_numbers(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = reinterpret_cast<const T*>(source.data);
    T* to = reinterpret_cast<T*>(y.data);
    for_lines(numbers, axis, work, [&](int64_t first, int64_t step, int) {
      int64_t base = 0, rest = first;
      for (size_t i = numbers.rank; i-- > 0;) {
        if (i != axis) base += rest % numbers.shape[i] * steps[i];
        rest /= numbers.shape[i];
      }
      for (int64_t i = 0; i < numbers.shape[axis]; ++i) {
        T& place = to[base + numbers.i32()[first + i * step] * steps[axis]];
        const T value = from[first + i * step];
        place = kind == kSet ? value : joined<T>(kind, place, value);
      }
    });
  });
}

// --- argsort(x): the order of each line, equal ones as they come, NaN as the greatest ---

// The bytes of a line's order, of which each thread has one.
size_t order_apart(const Tensor& x, size_t axis) {
  return scratch_apart(static_cast<size_t>(x.shape[axis]) * sizeof(int32_t), 1);
}

void check_argsort(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  require(x.dtype == DType::f32 || is_whole(x.dtype), call, "x must be f32, i32 or i64");
  require_array(call, x, x.dtype);
  require_array(call, y, DType::i32);
  require(same_shape(x, y), call, "the output does not fit");
  const size_t axis = axis_of(call, x);
  require(x.shape[axis] <= INT32_MAX, call, "the axis is too long");
  call.params.integer[0] = static_cast<int64_t>(axis);
  call.params.integer[1] = int_attribute(call, "descending", 0);
}

size_t argsort_scratch(const NodeCall& call, int threads) {
  return order_apart(call.in(0), static_cast<size_t>(call.params.integer[0])) *
         static_cast<size_t>(threads);
}

void run_argsort(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  const bool descending = call.params.integer[1] != 0;
  const auto count = static_cast<size_t>(x.shape[axis]);
  const size_t apart = order_apart(x, axis);
  of_numbers(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = reinterpret_cast<const T*>(x.data);
    for_lines(x, axis, work, [&](int64_t first, int64_t step, int thread) {
      auto* order = reinterpret_cast<int32_t*>(work.scratch + static_cast<size_t>(thread) * apart);
      std::iota(order, order + count, 0);
      const auto less = [](T a, T b) { return a < b || (is_nan(b) && !is_nan(a)); };
      // Not stable_sort, which allocates: equal ones are told apart by their places.
      std::sort(order, order + count, [&](int32_t i, int32_t j) {
        T a = from[first + i * step], b = from[first + j * step];
        if (descending) std::swap(a, b);
        return less(a, b) || (!less(b, a) && i < j);
      });
      for (size_t i = 0; i < count; ++i) y.i32()[first + static_cast<int64_t>(i) * step] = order[i];
    });
  });
}

// --- cumulate(x): each element joined with all before it ---

constexpr const char* kCumulateKinds[] = {"sum", "prod", "max", "min"};

void check_cumulate(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  require(y.dtype == DType::f32 || is_whole(y.dtype), call, "x must be f32, i32 or i64");
  require_array(call, x, y.dtype);
  require_array(call, y, y.dtype);
  require(same_shape(x, y), call, "the output does not fit");
  call.params.integer[0] = static_cast<int64_t>(axis_of(call, x));
  call.params.integer[1] = kind_of(call, kCumulateKinds);
}

void run_cumulate(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  const int64_t kind = call.params.integer[1];
  of_numbers(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = std::conditional_t<std::is_same_v<T, float>, double, T>;
    const T* from = reinterpret_cast<const T*>(x.data);
    T* to = reinterpret_cast<T*>(y.data);
    for_lines(x, axis, work, [&](int64_t first, int64_t step, int) {
      Wide value = from[first];
      to[first] = from[first];
      for (int64_t i = 1; i < x.shape[axis]; ++i) {
        value = joined<Wide>(kind, value, static_cast<Wide>(from[first + i * step]));
        to[first + i * step] = static_cast<T>(value);
      }
    });
  });
}

// --- count(like): 0, 1, 2, … as many as an axis has entries, of which only the number counts ---
// With steps, as many as (a * size + b) / c, rounded down, makes of that number in turn.

void check_count(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  require_array(call, y, DType::i32);
  int64_t size = x.shape[axis_of(call, x)];
  constexpr int64_t kMost = 1 << 20;
  const auto steps =
      call.info->attributes.find("steps") ? ints_attribute(call, "steps") : std::vector<int64_t>();
  require(steps.size() % 3 == 0, call, "bad steps");
  for (size_t i = 0; i < steps.size(); i += 3) {
    const int64_t times = steps[i], plus = steps[i + 1], over = steps[i + 2];
    require(times >= 1 && times <= kMost && std::abs(plus) <= kMost && over >= 1 && over <= kMost,
            call, "bad steps");
    size = size * times + plus;
    size = size / over - (size % over < 0);
    require(std::abs(size) <= kMaxDim, call, "bad steps");
  }
  require(y.rank == 1 && y.shape[0] == size && size <= INT32_MAX, call, "the output does not fit");
}

void run_count(const NodeCall& call, const Workspace&) {
  std::iota(call.output->i32(), call.output->i32() + call.output->shape[0], 0);
}

const OpDef kOps[] = {
    {{"count", 1, 1, false, {"axis", "steps"}, check_count}, {run_count}},
    {{.name = "scatter",
      .min_inputs = 3,
      .max_inputs = 3,
      .writes_state = false,
      .attributes = {"axis", "kind"},
      .check = check_scatter,
      .takes_empty = true},
     {run_scatter}},
    {{"argsort", 1, 1, false, {"axis", "descending"}, check_argsort},
     {run_argsort, argsort_scratch}},
    {{"cumulate", 1, 1, false, {"axis", "kind"}, check_cumulate}, {run_cumulate}},
};

}  // namespace

std::span<const OpDef> along_axis_ops() { return kOps; }

}  // namespace satchel
