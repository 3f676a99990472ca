// What `run --input` makes of pictures.
#pragma once

#include "arguments.h"

namespace satchel::runner {

// Whether a program is no language model.
bool is_classifier(const std::string& path);

int classify(const Arguments& given);

}  // namespace satchel::runner
