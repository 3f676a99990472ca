// Sums, means and extremes over some axes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "../cpu_op.h"

namespace satchel {

namespace {

// Rows that are reduced to one are shared out in so many parts, whatever the number of threads, if
// there are enough.
constexpr int64_t kParts = 4, kFewestRows = 4 * kParts;
constexpr int64_t kRowPiece = 64;

int64_t parts_of(int64_t reduced_count) { return reduced_count < kFewestRows ? 1 : kParts; }

// integer[0] is a bit mask of the axes.
void check_reduce(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  const bool whole = is_whole(y.dtype) && call.info->op->name != std::string("reduce_mean");
  require_array(call, x, whole ? y.dtype : DType::f32);
  require_array(call, y, whole ? y.dtype : DType::f32);
  call.params.integer[0] = check_reduced(call);
}

size_t reduce_scratch(const NodeCall& call, int) {
  const Tensor &x = call.in(0), &y = *call.output;
  const int64_t mask = call.params.integer[0];
  int64_t count = 1;
  for (size_t i = 0; i < x.rank; ++i) count *= mask >> i & 1 ? x.shape[i] : 1;
  return static_cast<size_t>(y.elements() * parts_of(count)) *
         sizeof(double);  // at most two for each of x
}

template <typename Step, typename Finish>
void reduce(const NodeCall& call, const Workspace& work, double first, Step step, Finish finish) {
  const Tensor &x = call.in(0), &y = *call.output;
  const int64_t mask = call.params.integer[0];
  int64_t strides[kMaxRank] = {}, stride = 1, reduced_count = 1;
  for (size_t i = x.rank; i-- > 0;) {
    strides[i] = stride;
    stride *= x.shape[i];
    if (mask >> i & 1) reduced_count *= x.shape[i];
  }
  // The offset of item `number` among the axes that are (or are not) reduced.
  const auto offset = [&](int64_t number, bool reduced) {
    int64_t at = 0;
    for (size_t i = x.rank; i-- > 0;) {
      if (static_cast<bool>(mask >> i & 1) != reduced) continue;
      at += number % x.shape[i] * strides[i];
      number /= x.shape[i];
    }
    return at;
  };
  // Axes side by side: what lies behind them is reduced as rows, in the same order for each.
  size_t from_axis = 0, to_axis = x.rank;
  while (from_axis < x.rank && !(mask >> from_axis & 1)) ++from_axis;
  while (to_axis > from_axis && !(mask >> (to_axis - 1) & 1)) --to_axis;
  if (x.product(from_axis, to_axis) == reduced_count) {
    const int64_t inner = x.product(to_axis, x.rank), outer = x.product(0, from_axis),
                  parts = parts_of(reduced_count);
    const int64_t pieces = (inner + kRowPiece - 1) / kRowPiece;
    double* partial = reinterpret_cast<double*>(work.scratch);
    // A thread takes rows rather than columns: those that it has written itself.
    const int64_t items = outer * parts * pieces;
    const bool few = stays_on_one_thread(reduced_count, static_cast<double>(x.elements()) * 64);
    work.pool.parallel_for(
        items, few ? items : grain_for(items, work.pool.size(), 1),
        [&](int64_t begin, int64_t end, int) {
          for (int64_t item = begin; item < end; ++item) {
            const int64_t at = item / pieces, part = at % parts, column = item % pieces * kRowPiece;
            const int64_t width = std::min(kRowPiece, inner - column);
            const int64_t row = part * reduced_count / parts,
                          after = (part + 1) * reduced_count / parts;
            const float* from = x.f32() + (at / parts * reduced_count + row) * inner + column;
            double values[kRowPiece];
            std::fill_n(values, kRowPiece, first);
            for (int64_t i = row; i < after; ++i, from += inner) {
              for (int64_t j = 0; j < width; ++j) values[j] = step(values[j], from[j]);
            }
            std::copy_n(values, width, partial + at * inner + column);
          }
        });
    for (int64_t item = 0; item < outer; ++item) {
      double* values = partial + item * parts * inner;
      for (int64_t part = 1; part < parts; ++part) {
        for (int64_t j = 0; j < inner; ++j) values[j] = step(values[j], values[part * inner + j]);
      }
      for (int64_t j = 0; j < inner; ++j) {
        y.f32()[item * inner + j] =
            static_cast<float>(finish(values[j], static_cast<double>(reduced_count)));
      }
    }
    return;
  }
  const int64_t count = y.elements();
  work.pool.parallel_for(
      count, grain_for(count, work.pool.size(), 16), [&](int64_t begin, int64_t end, int) {
        for (int64_t item = begin; item < end; ++item) {
          const float* from = x.f32() + offset(item, false);
          double value = first;
          for (int64_t i = 0; i < reduced_count; ++i) value = step(value, from[offset(i, true)]);
          y.f32()[item] = static_cast<float>(finish(value, static_cast<double>(reduced_count)));
        }
      });
}

// The same for whole numbers, which wrap around: with 64 bits, floats would not be exact.
template <typename T, typename Step>
void reduce_whole(const NodeCall& call, const Workspace& work, T first, Step step) {
  const Tensor &x = call.in(0), &y = *call.output;
  const int64_t mask = call.params.integer[0];
  // Of each axis of x, the step in x; kept axes first, so that items of y come in their order.
  int64_t sizes[2][kMaxRank] = {}, steps[2][kMaxRank] = {}, counts[2] = {1, 1};
  size_t ranks[2] = {};
  for (size_t i = 0; i < x.rank; ++i) {
    const size_t group = mask >> i & 1;
    sizes[group][ranks[group]] = x.shape[i];
    steps[group][ranks[group]++] = x.product(i + 1, x.rank);
    counts[group] *= x.shape[i];
  }
  const auto offset = [&](size_t group, int64_t number) {
    int64_t at = 0;
    for (size_t i = ranks[group]; i-- > 0;) {
      at += number % sizes[group][i] * steps[group][i];
      number /= sizes[group][i];
    }
    return at;
  };
  const T* from = reinterpret_cast<const T*>(x.data);
  work.pool.parallel_for(counts[0], grain_for(counts[0], work.pool.size(), 16),
                         [&](int64_t begin, int64_t end, int) {
                           for (int64_t item = begin; item < end; ++item) {
                             T value = first;
                             const T* own = from + offset(0, item);
                             for (int64_t i = 0; i < counts[1]; ++i)
                               value = step(value, own[offset(1, i)]);
                             reinterpret_cast<T*>(y.data)[item] = value;
                           }
                         });
}

// Whether the numbers are whole, and so are done. `first` gives what each type starts with.
template <typename First, typename Step>
bool reduced_whole(const NodeCall& call, const Workspace& work, First first, Step step) {
  const auto run = [&](auto zero) { reduce_whole<decltype(zero)>(call, work, first(zero), step); };
  if (call.output->dtype == DType::i32) run(int32_t{});
  if (call.output->dtype == DType::i64) run(int64_t{});
  return is_whole(call.output->dtype);
}

constexpr auto plain = [](double value, double) { return value; };
constexpr auto sum = [](double total, double x) { return total + x; };
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of no elements there is a sum, but no largest one.
constexpr OpSchema reduction(const char* name, bool takes_empty) {
  return {.name = name,
          .min_inputs = 1,
          .max_inputs = 1,
          .writes_state = false,
          .attributes = {"axes", "keepdims"},
          .check = check_reduce,
          .takes_empty = takes_empty};
}

const OpDef kOps[] = {
    {reduction("reduce_sum", true),
     {[](const NodeCall& call, const Workspace& work) {
        const auto wrapping = [](auto total, auto x) {
          using U = std::make_unsigned_t<decltype(x)>;
          return static_cast<decltype(x)>(static_cast<U>(total) + static_cast<U>(x));
        };
        if (!reduced_whole(call, work, [](auto zero) { return zero; }, wrapping))
          reduce(call, work, 0.0, sum, plain);
      },
      reduce_scratch}},
    {reduction("reduce_prod", true),
     {[](const NodeCall& call, const Workspace& work) {
        const auto wrapping = [](auto total, auto x) {
          using U = std::make_unsigned_t<decltype(x)>;
          return static_cast<decltype(x)>(static_cast<U>(total) * static_cast<U>(x));
        };
        const auto one = [](auto zero) { return static_cast<decltype(zero)>(1); };
        if (!reduced_whole(call, work, one, wrapping))
          reduce(call, work, 1.0, [](double total, double x) { return total * x; }, plain);
      },
      reduce_scratch}},
    {reduction("reduce_mean", true),
     {[](const NodeCall& call, const Workspace& work) {
        reduce(call, work, 0.0, sum, [](double total, double n) { return total / n; });
      },
      reduce_scratch}},
    {reduction("reduce_max", false),
     {[](const NodeCall& call, const Workspace& work) {
        const auto lowest = [](auto zero) { return std::numeric_limits<decltype(zero)>::min(); };
        if (reduced_whole(call, work, lowest, [](auto a, auto b) { return std::max(a, b); }))
          return;
        reduce(
            call, work, -kInfinity,
            [](double best, double x) { return best >= x || std::isnan(best) ? best : x; }, plain);
      },
      reduce_scratch}},
    {reduction("reduce_min", false),
     {[](const NodeCall& call, const Workspace& work) {
        const auto highest = [](auto zero) { return std::numeric_limits<decltype(zero)>::max(); };
        if (reduced_whole(call, work, highest, [](auto a, auto b) { return std::min(a, b); }))
          return;
        reduce(
            call, work, kInfinity,
            [](double best, double x) { return best <= x || std::isnan(best) ? best : x; }, plain);
      },
      reduce_scratch}},
};

}  // namespace

int64_t check_reduced(const NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  int64_t mask = 0;
  for (const int64_t axis : ints_attribute(call, "axes")) {
    require(axis >= 0 && axis < static_cast<int64_t>(x.rank) && !(mask >> axis & 1), call,
            "bad axes");
    mask |= int64_t{1} << axis;
  }
  const bool keep = int_attribute(call, "keepdims", 0) != 0;
  size_t at = 0;
  for (size_t i = 0; i < x.rank; ++i) {
    const bool reduced = mask >> i & 1;
    if (reduced && !keep) continue;
    require(at < y.rank && y.shape[at] == (reduced ? 1 : x.shape[i]), call,
            "the output does not fit");
    ++at;
  }
  require(at == y.rank, call, "the output does not fit");
  return mask;
}

std::span<const OpDef> reduce_ops() { return kOps; }

}  // namespace satchel
