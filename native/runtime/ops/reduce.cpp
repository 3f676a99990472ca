// Sums, means and extremes over some axes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "../op.h"

namespace satchel {

namespace {

// integer[0] is a bit mask of the axes.
size_t check_reduce(NodeCall& call, int) {
  require_array(call, call.in(0), DType::f32);
  require_array(call, *call.output, DType::f32);
  call.params.integer[0] = check_reduced(call);
  return 0;
}

constexpr int64_t kRowPiece = 64;

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
    const int64_t inner = x.product(to_axis, x.rank), outer = x.product(0, from_axis);
    const int64_t pieces = (inner + kRowPiece - 1) / kRowPiece;
    work.pool.parallel_for(outer * pieces, grain_for(outer * pieces, work.pool.size(), 1),
                           [&](int64_t begin, int64_t end, int) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t item = piece / pieces, column = piece % pieces * kRowPiece;
        const int64_t width = std::min(kRowPiece, inner - column);
        const float* from = x.f32() + item * reduced_count * inner + column;
        double values[kRowPiece];
        std::fill_n(values, width, first);
        for (int64_t i = 0; i < reduced_count; ++i, from += inner) {
          for (int64_t j = 0; j < width; ++j) values[j] = step(values[j], from[j]);
        }
        float* to = y.f32() + item * inner + column;
        for (int64_t j = 0; j < width; ++j) {
          to[j] = static_cast<float>(finish(values[j], static_cast<double>(reduced_count)));
        }
      }
    });
    return;
  }
  const int64_t count = y.elements();
  work.pool.parallel_for(count, grain_for(count, work.pool.size(), 16), [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const float* from = x.f32() + offset(item, false);
      double value = first;
      for (int64_t i = 0; i < reduced_count; ++i) value = step(value, from[offset(i, true)]);
      y.f32()[item] = static_cast<float>(finish(value, static_cast<double>(reduced_count)));
    }
  });
}

constexpr auto plain = [](double value, double) { return value; };
constexpr auto sum = [](double total, float x) { return total + x; };
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const OpDef kOps[] = {
    {"reduce_sum", 1, 1, false, {"axes", "keepdims"}, check_reduce,
     [](const NodeCall& call, const Workspace& work) { reduce(call, work, 0.0, sum, plain); }},
    {"reduce_mean", 1, 1, false, {"axes", "keepdims"}, check_reduce,
     [](const NodeCall& call, const Workspace& work) {
       reduce(call, work, 0.0, sum, [](double total, double n) { return total / n; });
     }},
    {"reduce_max", 1, 1, false, {"axes", "keepdims"}, check_reduce,
     [](const NodeCall& call, const Workspace& work) {
       reduce(call, work, -kInfinity, [](double best, float x) { return best >= x || std::isnan(best) ? best : x; }, plain);
     }},
    {"reduce_min", 1, 1, false, {"axes", "keepdims"}, check_reduce,
     [](const NodeCall& call, const Workspace& work) {
       reduce(call, work, kInfinity, [](double best, float x) { return best <= x || std::isnan(best) ? best : x; }, plain);
     }},
};

}  // namespace

int64_t check_reduced(const NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  int64_t mask = 0;
  for (const int64_t axis : ints_attribute(call, "axes")) {
    require(axis >= 0 && axis < static_cast<int64_t>(x.rank) && !(mask >> axis & 1), call, "bad axes");
    mask |= int64_t{1} << axis;
  }
  const bool keep = int_attribute(call, "keepdims", 0) != 0;
  size_t at = 0;
  for (size_t i = 0; i < x.rank; ++i) {
    const bool reduced = mask >> i & 1;
    if (reduced && !keep) continue;
    require(at < y.rank && y.shape[at] == (reduced ? 1 : x.shape[i]), call, "the output does not fit");
    ++at;
  }
  require(at == y.rank, call, "the output does not fit");
  return mask;
}

std::span<const OpDef> reduce_ops() { return kOps; }

}  // namespace satchel
