// Which executor runs which node, and which values cross from one to another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor.h"

namespace satchel {

// Nodes that an executor left to the ones after it.
struct Refusal {
  std::string executor, op, reason;
  size_t nodes;
};

struct Placement {
  std::vector<std::vector<PartInfo>> parts;  // by the method's number
  std::vector<size_t> owners;                // of each state: the number of its executor
  std::vector<Refusal> refusals;
};

// Each node goes to the first executor that takes it; number 0 is the host's CPU and is asked last.
// Nodes that share a state stay together. Throws ExecutionError if nobody can run a node.
Placement place(const Program& program, std::vector<BoundMethod>& methods,
                const std::vector<std::shared_ptr<Executor>>& executors);

}  // namespace satchel
