// The steps of a language model on a Hexagon NPU, or on its emulator: what the host does before,
// between and after the compiled graphs.
#pragma once

#include <memory>
#include <string>

#include "../llm/engine.h"

namespace satchel::llm {

// `instance` runs the CPU's part and outlives the engine. `target` is one of the program's. Throws
// ConfigError if the vendor's libraries are missing or refuse, FormatError if the file is damaged.
std::unique_ptr<Engine> make_npu_engine(Instance& instance, const std::string& path,
                                        const std::string& target);

}  // namespace satchel::llm
