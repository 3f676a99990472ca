// Programs that are no language models: what `run --input` makes of pictures, and bench.
#pragma once

#include "arguments.h"

namespace satchel::runner {

// Whether a program is no language model.
bool is_classifier(const std::string& path);

int classify(const Arguments& given);
int bench_module(const Arguments& given);

}  // namespace satchel::runner
