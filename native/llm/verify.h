// Whether every byte of a program is what was written.
#pragma once

#include <string>

#include "../runtime/program_file.h"

namespace satchel::llm {

// Reads the whole file. Throws ChecksumError at the first byte that is not what
// it was.
void verify(const ProgramFile& file);

// One digest that stands for the whole file, its weights included, in
// hexadecimal.
std::string checksum(const ProgramFile& file);

}  // namespace satchel::llm
