// Which rows of a cache the tokens of a step have.
#pragma once

#include <cstdint>
#include <string>

#include "errors.h"
#include "op.h"

namespace satchel {

// Tokens of a step that follow each other in one sequence: a line, whose positions rise by one; all
// at the same position; or, with parents, a tree. Token i of a line has the row of its position,
// and token i of a tree the row `position + i`.
struct Run {
  int64_t first = 0, count = 0;
  int32_t sequence = 0;
  int64_t position = 0;  // of the first token
  bool level = false;
  int64_t items = 0;  // of work, up to this run's end
};

// Calls take(run) for the runs of a step in order.
template <typename Take>
void each_run(const Tensor& sequence, const Tensor& position, bool tree, Take take) {
  const int64_t tokens = sequence.shape[0];
  const int32_t *of = sequence.i32(), *at = position.i32();
  for (int64_t first = 0, end; first < tokens; first = end) {
    end = first + 1;
    const bool level = !tree && end < tokens && at[end] == at[first];
    while (end < tokens && of[end] == of[first] &&
           (tree || int64_t{at[end]} == at[first] + (level ? 0 : end - first))) {
      ++end;
    }
    take(Run{first, end - first, of[first], at[first], level && end - first > 1, 0});
  }
}

// Whether the rows are there; the program's context is the caches' second size.
inline void require_rows(int64_t first, int64_t count, int64_t capacity) {
  if (first < 0 || first + count > capacity) {
    throw ExecutionError("the tokens " + std::to_string(first) + " to " +
                         std::to_string(first + count - 1) + " do not fit in a context of " +
                         std::to_string(capacity));
  }
}

// Whether rows behind `start` can be moved together to it.
inline void require_rising_rows(const int32_t* rows, int64_t count, int64_t start,
                                int64_t capacity) {
  require_rows(start, count, capacity);
  for (int64_t i = 0; i < count; ++i) {
    // Rising, so that no row is overwritten before it has been moved.
    if (rows[i] < 0 || rows[i] >= capacity - start || (i > 0 && rows[i] <= rows[i - 1])) {
      throw ExecutionError("the row " + std::to_string(rows[i]) +
                           " cannot be moved: rows must rise and lie in the context");
    }
  }
}

inline void require_only_sequence(int32_t sequence) {
  if (sequence != 0) throw ExecutionError("there is no sequence " + std::to_string(sequence));
}

// A tree's parents as numbers within its run, and how many ancestors each token has. Its positions
// follow from them.
inline void find_depths(const Run& run, const int32_t* given, const int32_t* positions,
                        int32_t* parents, int32_t* depths) {
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t parent =
        given[run.first + i] < 0 ? given[run.first + i] : given[run.first + i] - run.first;
    if (parent < -1 || parent >= i || (parent == -1) != (given[run.first + i] == -1)) {
      throw ExecutionError("the token " + std::to_string(run.first + i) +
                           " cannot have the parent " + std::to_string(given[run.first + i]));
    }
    parents[i] = static_cast<int32_t>(parent);
    depths[i] = parent < 0 ? 0 : depths[parent] + 1;
    if (positions[run.first + i] != run.position + depths[i]) {
      throw ExecutionError("the token " + std::to_string(run.first + i) + " of a tree stands at " +
                           std::to_string(run.position + depths[i]) + ", not at " +
                           std::to_string(positions[run.first + i]));
    }
  }
}

}  // namespace satchel
