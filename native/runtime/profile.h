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

  // A call, and those that are joined to it.
  void add(const NodeCall& call, Clock::duration time) {
    Row& row = rows_[call.info->op->name];
    row.calls += 1 + call.joined;
    row.seconds += std::chrono::duration<double>(time).count();
  }

  const std::map<std::string, Row>& rows() const { return rows_; }

 private:
  std::map<std::string, Row> rows_;
};

}  // namespace satchel
