// Where the time of calls goes: how often each op ran, and how long.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "op.h"

namespace satchel {

class Profile {
 public:
  using Clock = std::chrono::steady_clock;
  struct Row {
    uint64_t calls = 0;
    double seconds = 0.0;
  };

  // A call and those that are joined to it: the time counts for the first that has a matrix of weights.
  void add(const NodeCall& call, Clock::duration time) {
    const NodeCall* main = nullptr;
    for (const NodeCall& one : std::span(&call, call.joined + 1)) {
      ++rows_[one.info->op->name].calls;
      for (const Tensor* input : one.inputs) {
        if (!main && input && input->weight && input->weight->is_matrix()) main = &one;
      }
    }
    rows_[(main ? main : &call)->info->op->name].seconds += std::chrono::duration<double>(time).count();
  }

  const std::map<std::string, Row>& rows() const { return rows_; }

 private:
  std::map<std::string, Row> rows_;
};

}  // namespace satchel
