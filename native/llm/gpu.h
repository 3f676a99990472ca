// GPUs for language models, without Python.
#pragma once

#include <memory>
#include <string>

#include "../runtime/executor.h"
#include "engine.h"

namespace satchel::llm {

inline bool is_gpu(const std::string& target) {
  return target == "vulkan" || target.starts_with("vulkan:");
}

struct Gpu {
  std::shared_ptr<Executor> executor;
  uint64_t cache_memory;  // what the caches may take
  Chip chip;
};

// A GPU by its target, vulkan[:DEVICE[:LAYERS]], for a program: with as many layers as it has
// memory for, where none are named. Throws ConfigError for what is no target, where this build has
// no GPUs, and where the device has memory for nothing; ExecutionError where there is no device.
Gpu open_gpu(const Program& program, const std::string& target, uint64_t cache_memory);

}  // namespace satchel::llm
