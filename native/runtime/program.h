// A program: a valid file and its methods. Shared, read-only, by all its instances.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "huge_pages.h"
#include "method.h"
#include "program_file.h"

namespace satchel {

class Program {
 public:
  // Throws FormatError; afterwards every method is known to run without touching memory that is
  // not its own, whatever its inputs.
  explicit Program(const std::string& path);

  const ProgramFile& file() const { return file_; }
  // For programs that are called again and again: their weights are then read faster.
  void settle() const;
  const std::vector<StateInfo>& states() const { return table_.states; }
  const std::vector<Method>& methods() const { return table_.methods; }
  // What a call reads of the weights: those of linear layers are read in full.
  uint64_t weight_bytes_read(const Method& method) const;

 private:
  ProgramFile file_;
  MethodTable table_;
  mutable std::once_flag settled_;
  mutable HugePageMover mover_;  // after the file, which must outlive it
};

}  // namespace satchel
