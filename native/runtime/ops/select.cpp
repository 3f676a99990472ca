// Ops that compare, choose, pick by number, pad and repeat.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "../broadcast.h"
#include "../errors.h"
#include "../cpu_op.h"

namespace satchel {

namespace {

constexpr int64_t kSmallestPiece = 4096;
constexpr const char* kComparisons[] = {"lt", "le", "gt", "ge", "eq", "ne"};

bool is_number(DType dtype) { return dtype == DType::f32 || is_whole(dtype); }

// Calls work(row, first element of the row) for all rows of the output along its last dimension.
template <typename Row>
void for_rows(const Tensor& y, const Workspace& work, Row row) {
  const int64_t width = y.last(), rows = y.elements() / width;
  const int64_t grain = std::max<int64_t>(1, kSmallestPiece / width);
  work.pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) row(i, i * width);
  });
}

// --- compare(a, b) ---

void check_compare(NodeCall& call) {
  const Tensor &a = call.in(0), &b = call.in(1);
  require(is_number(a.dtype), call, "the operands must be f32, i32 or i64");
  require_array(call, a, a.dtype);
  require_array(call, b, a.dtype);
  require_array(call, *call.output, DType::boolean);
  require_broadcast(call, {&a, &b});
  const std::string kind = text_attribute(call, "kind", "");
  const auto found = std::find(std::begin(kComparisons), std::end(kComparisons), kind);
  require(found != std::end(kComparisons), call, "there is no such comparison");
  call.params.integer[0] = found - std::begin(kComparisons);
}

template <typename T, typename Test>
void compare_rows(const NodeCall& call, const Workspace& work, Test test) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  int64_t step_a[kMaxRank] = {}, step_b[kMaxRank] = {};
  broadcast_strides(a, y, step_a);
  broadcast_strides(b, y, step_b);
  const int64_t inner_a = y.rank ? step_a[y.rank - 1] : 0,
                inner_b = y.rank ? step_b[y.rank - 1] : 0;
  for_rows(y, work, [&](int64_t row, int64_t first) {
    const T* left = reinterpret_cast<const T*>(a.data) + row_offset(y, step_a, row);
    const T* right = reinterpret_cast<const T*>(b.data) + row_offset(y, step_b, row);
    for (int64_t i = 0; i < y.last(); ++i)
      y.data[first + i] = test(left[i * inner_a], right[i * inner_b]);
  });
}

template <typename T>
void run_compare_of(const NodeCall& call, const Workspace& work) {
  switch (call.params.integer[0]) {
    case 0:
      return compare_rows<T>(call, work, [](T a, T b) { return a < b; });
    case 1:
      return compare_rows<T>(call, work, [](T a, T b) { return a <= b; });
    case 2:
      return compare_rows<T>(call, work, [](T a, T b) { return a > b; });
    case 3:
      return compare_rows<T>(call, work, [](T a, T b) { return a >= b; });
    case 4:
      return compare_rows<T>(call, work, [](T a, T b) { return a == b; });
    default:
      return compare_rows<T>(call, work, [](T a, T b) { return a != b; });
  }
}

void run_compare(const NodeCall& call, const Workspace& work) {
  switch (call.in(0).dtype) {
    case DType::f32:
      return run_compare_of<float>(call, work);
    case DType::i32:
      return run_compare_of<int32_t>(call, work);
    default:
      return run_compare_of<int64_t>(call, work);
  }
}

// --- where(condition, a, b): numbers of four or eight bytes are moved as they are ---

void check_where(NodeCall& call) {
  require_array(call, call.in(0), DType::boolean);
  require(is_number(call.output->dtype), call, "the choices must be f32, i32 or i64");
  for (size_t i = 1; i < 3; ++i) require_array(call, call.in(i), call.output->dtype);
  require_broadcast(call, {&call.in(0), &call.in(1), &call.in(2)});
}

template <typename T>
void choose(const NodeCall& call, const Workspace& work) {
  const Tensor& y = *call.output;
  int64_t steps[3][kMaxRank] = {}, inner[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    broadcast_strides(call.in(i), y, steps[i]);
    inner[i] = y.rank ? steps[i][y.rank - 1] : 0;
  }
  for_rows(y, work, [&](int64_t row, int64_t first) {
    const uint8_t* condition = call.in(0).data + row_offset(y, steps[0], row);
    const T* a = reinterpret_cast<const T*>(call.in(1).data) + row_offset(y, steps[1], row);
    const T* b = reinterpret_cast<const T*>(call.in(2).data) + row_offset(y, steps[2], row);
    T* out = reinterpret_cast<T*>(y.data) + first;
    for (int64_t i = 0; i < y.last(); ++i) {
      out[i] = condition[i * inner[0]] ? a[i * inner[1]] : b[i * inner[2]];
    }
  });
}

void run_where(const NodeCall& call, const Workspace& work) {
  call.output->dtype == DType::i64 ? choose<uint64_t>(call, work) : choose<uint32_t>(call, work);
}

// --- expand(x, like?) ---

void check_expand(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  require_array(call, x, y.dtype);
  const auto shape = ints_attribute(call, "shape");
  require(shape.size() == y.rank && x.rank <= y.rank, call, "the output does not fit");
  for (size_t i = 0; i < y.rank; ++i) {
    int64_t want = shape[i];
    if (want < 0) {
      const int64_t from = -1 - want;
      require(call.has(1) && from < static_cast<int64_t>(call.in(1).rank), call, "bad shape");
      want = call.in(1).shape[from];
    }
    require(y.shape[i] == want, call, "the output does not fit");
  }
  for (size_t i = 0; i < x.rank; ++i) {
    const int64_t own = x.shape[x.rank - 1 - i];
    require(own == 1 || own == y.shape[y.rank - 1 - i], call, "the shapes do not broadcast");
  }
}

void run_expand(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const size_t size = dtype_size(y.dtype);
  int64_t steps[kMaxRank] = {};
  broadcast_strides(x, y, steps);
  const bool whole = y.rank == 0 || steps[y.rank - 1] != 0 || y.last() == 1;
  for_rows(y, work, [&](int64_t row, int64_t first) {
    const uint8_t* from = x.data + static_cast<size_t>(row_offset(y, steps, row)) * size;
    uint8_t* to = y.data + static_cast<size_t>(first) * size;
    if (whole) {
      std::memcpy(to, from, static_cast<size_t>(y.last()) * size);
    } else {
      for (int64_t i = 0; i < y.last(); ++i)
        std::memcpy(to + static_cast<size_t>(i) * size, from, size);
    }
  });
}

// --- take(x, numbers), gather(x, numbers) ---

int64_t checked_axis(const NodeCall& call, const Tensor& x) {
  const int64_t axis = int_attribute(call, "axis");
  require(axis >= 0 && axis < static_cast<int64_t>(x.rank), call, "there is no such axis");
  return axis;
}

void require_entries(const Tensor& numbers, int64_t count) {
  for (int64_t i = 0; i < numbers.elements(); ++i) {
    const int32_t number = numbers.i32()[i];
    if (number < 0 || number >= count) {
      throw ExecutionError("there is no entry " + std::to_string(number) + " among " +
                           std::to_string(count));
    }
  }
}

void check_take(NodeCall& call) {
  const Tensor &x = call.in(0), &numbers = call.in(1), &y = *call.output;
  require_array(call, x, y.dtype);
  require_array(call, numbers, DType::i32);
  const int64_t axis = checked_axis(call, x);
  require(numbers.rank == 1 && y.rank == x.rank, call, "the ranks do not fit");
  for (size_t i = 0; i < x.rank; ++i) {
    const int64_t want = static_cast<int64_t>(i) == axis ? numbers.shape[0] : x.shape[i];
    require(y.shape[i] == want, call, "the output does not fit");
  }
  call.params.integer[0] = axis;
}

void run_take(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &numbers = call.in(1), &y = *call.output;
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  require_entries(numbers, x.shape[axis]);
  const size_t size = static_cast<size_t>(x.product(axis + 1, x.rank)) * dtype_size(x.dtype);
  const int64_t count = numbers.shape[0], pieces = x.product(0, axis) * count;
  const int64_t grain = std::max<int64_t>(1, kSmallestPiece / static_cast<int64_t>(size));
  work.pool.parallel_for(pieces, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = i / count * x.shape[axis] + numbers.i32()[i % count];
      std::memcpy(y.data + static_cast<size_t>(i) * size, x.data + static_cast<size_t>(from) * size,
                  size);
    }
  });
}

void check_gather(NodeCall& call) {
  const Tensor &x = call.in(0), &numbers = call.in(1), &y = *call.output;
  require_array(call, x, y.dtype);
  require_array(call, numbers, DType::i32);
  const int64_t axis = checked_axis(call, x);
  require(numbers.rank == x.rank && same_shape(numbers, y), call, "the output does not fit");
  for (size_t i = 0; i < x.rank; ++i) {
    require(static_cast<int64_t>(i) == axis || numbers.shape[i] <= x.shape[i], call,
            "there are too many numbers");
  }
  call.params.integer[0] = axis;
}

void run_gather(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &numbers = call.in(1), &y = *call.output;
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  require_entries(numbers, x.shape[axis]);
  const size_t size = dtype_size(x.dtype);
  int64_t steps[kMaxRank] = {};
  for (size_t i = 0; i < x.rank; ++i) steps[i] = x.product(i + 1, x.rank);
  const bool along_last = axis + 1 == x.rank;
  const int64_t own_step = steps[axis], last_step = along_last ? 0 : 1;
  steps[axis] = 0;
  for_rows(y, work, [&](int64_t row, int64_t first) {
    const int64_t base = row_offset(y, steps, row);
    for (int64_t i = 0; i < y.last(); ++i) {
      const int64_t from = base + i * last_step + numbers.i32()[first + i] * own_step;
      std::memcpy(y.data + static_cast<size_t>(first + i) * size,
                  x.data + static_cast<size_t>(from) * size, size);
    }
  });
}

// --- pad(x) ---

void check_pad(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  require(is_number(y.dtype) || y.dtype == DType::u8, call, "x must be f32, i32, i64 or u8");
  require_array(call, x, y.dtype);
  const auto before = ints_attribute(call, "before"), after = ints_attribute(call, "after");
  require(before.size() == x.rank && after.size() == x.rank && y.rank == x.rank, call,
          "the padding does not fit");
  for (size_t i = 0; i < x.rank; ++i) {
    const bool sane =
        before[i] >= 0 && after[i] >= 0 && before[i] <= kMaxDim && after[i] <= kMaxDim;
    require(sane && y.shape[i] == x.shape[i] + before[i] + after[i], call,
            "the output does not fit");
  }
  const double value = number_attribute(call, "value", 0.0);
  if (y.dtype != DType::f32) {
    const double low = y.dtype == DType::u8 ? 0.0 : -2147483647.0,
                 high = y.dtype == DType::u8 ? 255.0 : 2147483647.0;
    require(value >= low && value <= high && value == std::floor(value), call,
            "the value does not fit the dtype");
  }
  call.params.number[0] = value;
}

template <typename T>
void pad_rows(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const T value = static_cast<T>(call.params.number[0]);
  const T* from = reinterpret_cast<const T*>(x.data);
  T* to = reinterpret_cast<T*>(y.data);
  if (y.rank == 0) {
    *to = *from;
    return;
  }
  const auto before = ints_attribute(call, "before");
  const size_t last = y.rank - 1;
  for_rows(y, work, [&](int64_t row, int64_t first) {
    int64_t at = 0, rest = row, stride = x.shape[last];
    bool inside = true;
    for (size_t i = last; i-- > 0;) {
      const int64_t index = rest % y.shape[i] - before[i];
      rest /= y.shape[i];
      inside = inside && index >= 0 && index < x.shape[i];
      at += index * stride;
      stride *= x.shape[i];
    }
    T* out = to + first;
    if (!inside) {
      std::fill(out, out + y.last(), value);
      return;
    }
    std::fill(out, out + before[last], value);
    std::copy(from + at, from + at + x.last(), out + before[last]);
    std::fill(out + before[last] + x.last(), out + y.last(), value);
  });
}

void run_pad(const NodeCall& call, const Workspace& work) {
  switch (call.output->dtype) {
    case DType::f32:
      return pad_rows<float>(call, work);
    case DType::i32:
      return pad_rows<int32_t>(call, work);
    case DType::i64:
      return pad_rows<int64_t>(call, work);
    default:
      return pad_rows<uint8_t>(call, work);
  }
}

// --- argmax(x) ---

void check_argmax(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  require_array(call, x, DType::f32);
  require_array(call, y, DType::i32);
  const int64_t axis = checked_axis(call, x);
  const bool keep = int_attribute(call, "keepdims", 0) != 0;
  require(x.shape[axis] <= INT32_MAX, call, "the axis is too long");
  size_t at = 0;
  for (size_t i = 0; i < x.rank; ++i) {
    const bool reduced = static_cast<int64_t>(i) == axis;
    if (reduced && !keep) continue;
    require(at < y.rank && y.shape[at] == (reduced ? 1 : x.shape[i]), call,
            "the output does not fit");
    ++at;
  }
  require(at == y.rank, call, "the output does not fit");
  call.params.integer[0] = axis;
}

void run_argmax(const NodeCall& call, const Workspace& work) {
  const Tensor& x = call.in(0);
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  const int64_t inner = x.product(axis + 1, x.rank), count = x.shape[axis],
                items = x.product(0, axis) * inner;
  work.pool.parallel_for(
      items, std::max<int64_t>(1, kSmallestPiece / count), [&](int64_t begin, int64_t end, int) {
        for (int64_t item = begin; item < end; ++item) {
          const float* from = x.f32() + item / inner * count * inner + item % inner;
          int64_t best = 0;
          for (int64_t i = 1; i < count && !std::isnan(from[best * inner]); ++i) {
            const float value = from[i * inner];
            if (value > from[best * inner] || std::isnan(value)) best = i;
          }
          call.output->i32()[item] = static_cast<int32_t>(best);
        }
      });
}

const OpDef kOps[] = {
    {{"compare", 2, 2, false, {"kind"}, check_compare}, {run_compare}},
    {{"where", 3, 3, false, {}, check_where}, {run_where}},
    {{"expand", 1, 2, false, {"shape"}, check_expand}, {run_expand}},
    {{"take", 2, 2, false, {"axis"}, check_take}, {run_take}},
    {{"gather", 2, 2, false, {"axis"}, check_gather}, {run_gather}},
    {{"pad", 1, 1, false, {"before", "after", "value"}, check_pad}, {run_pad}},
    {{"argmax", 1, 1, false, {"axis", "keepdims"}, check_argmax}, {run_argmax}},
};

}  // namespace

std::span<const OpDef> select_ops() { return kOps; }

}  // namespace satchel
