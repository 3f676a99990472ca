#include "many_blocks.h"

#include <algorithm>
#include <limits>

namespace satchel::vulkan {

namespace {

constexpr int64_t kCores = 132, kRun = 1024;  // cores of a large device; columns of a run
constexpr int64_t kMostSplits = 8;

// Times in microseconds, as measured on an H200, on which a core has two workgroups of each kind.
struct Kind {
  uint32_t tokens, rows, columns;
  double around, alone, together;  // a workgroup's steps; one of them on a core of its own, or not
  bool has_products;               // its subgroups have an even number of tiles
};
constexpr Kind kKinds[] = {
    {128, 128, 64, 5, 0.8, 1.13, true},
    {128, 96, 64, 5, 0.7, 0.9, false},
    {64, 64, 128, 4, 0.76, 0.9, true},
};
// Of adding parts of results up.
constexpr double kDispatch = 5, kBytesInTime = 4e6;

int64_t rounded_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

double step_time(const Kind& kind, int64_t groups) {
  const int64_t rounds = groups / (2 * kCores), rest = groups % (2 * kCores);
  return static_cast<double>(rounds) * kind.together + (rest == 0        ? 0
                                                        : rest <= kCores ? kind.alone
                                                                         : kind.together);
}

}  // namespace

ManyBlocks many_blocks(int64_t tokens, int64_t rows, int64_t cols, bool is_product,
                       bool may_split) {
  ManyBlocks best{};
  double least = std::numeric_limits<double>::infinity();
  for (const Kind& kind : kKinds) {
    if (is_product && !kind.has_products) continue;
    const int64_t steps = rounded_up(cols, kind.columns);
    for (int64_t splits = 1; splits <= (may_split ? kMostSplits : 1); ++splits) {
      const int64_t own = rounded_up(steps, 2 * splits) * 2;  // as the shader has it
      if ((splits - 1) * own >= steps) break;                 // one would have none
      const int64_t groups = rounded_up(tokens, kind.tokens) * rounded_up(rows, kind.rows) * splits;
      const double summing =
          splits == 1 ? 0
                      : kDispatch + static_cast<double>(8 * tokens * rows * splits) / kBytesInTime;
      const double time = kind.around +
                          static_cast<double>(std::min(own, steps)) * step_time(kind, groups) +
                          summing;
      if (time >= least) continue;
      least = time;
      // A split need not begin where a run does.
      const int64_t runs =
          splits == 1 ? rounded_up(cols, kRun) : rounded_up(own * kind.columns, kRun) + 1;
      best = {kind.tokens, kind.rows, kind.columns, static_cast<uint32_t>(splits),
              static_cast<uint32_t>(std::min(runs, rounded_up(cols, kRun)))};
    }
  }
  return best;
}

}  // namespace satchel::vulkan
