// Of a block of tokens, logits are mostly wanted for the last one only. What leads to nothing but
// rows that are taken later, in a language model all of the last layer behind its keys and values,
// is then computed for the wanted rows and those after them, and not for all.
#pragma once

#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cpu_op.h"

namespace satchel {

class LastRows {
 public:
  // Looks for a take_rows and for the calls that lead to nothing else.
  explicit LastRows(const std::vector<NodeCall>& calls);

  // The first row that is wanted; 0 if it is not worth leaving any out, or if some row does not
  // exist.
  int64_t first_wanted() const;

  // All calls, those that were found for the rows from `first` on. `calls` are bound; returns the
  // scratch needed.
  size_t bind(const std::vector<NodeCall>& calls, int64_t first, int threads);
  const std::vector<NodeCall>& calls() const { return calls_; }
  void forget() { first_ = 0; }  // the sizes have changed

 private:
  struct View {
    const Tensor* whole;
    Tensor part;
  };
  Tensor* view_of(Tensor* whole);

  const Tensor* rows_ = nullptr;                      // of take_rows
  const Tensor* taken_ = nullptr;                     // what it takes from
  std::vector<bool> shortened_;                       // by the number of the call
  std::deque<View> views_;                            // which do not move
  std::unordered_map<const Tensor*, Tensor*> parts_;  // of the tensors that have a view
  std::vector<NodeCall> calls_;
  int64_t first_ = 0;
  size_t scratch_ = 0;
};

// Marks which of the calls after each one are done along with it.
void join_calls(std::vector<NodeCall>& calls);

}  // namespace satchel
