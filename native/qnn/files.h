// The files that a program holds for an NPU, in a folder, where the vendor's libraries read them.
#pragma once

#include <filesystem>
#include <string>

#include "../runtime/program_file.h"
#include "manifest.h"

namespace satchel::qnn {

// A file of a target, after checking its checksum. Throws FormatError if there is none.
std::string_view payload(const ProgramFile& file, const std::string& target,
                         const std::string& name);

// A folder that is gone with the object, unless it is somebody else's.
class PayloadFolder {
 public:
  // Of the program's own files; or, on an emulator and if methods share weights, of those that were
  // compiled for it by Python's first run. Throws ConfigError if these are not there.
  PayloadFolder(const ProgramFile& file, const Manifest& manifest, bool is_emulated);
  ~PayloadFolder();
  PayloadFolder(const PayloadFolder&) = delete;
  PayloadFolder& operator=(const PayloadFolder&) = delete;

  std::string path(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
  bool is_own_ = false;
};

}  // namespace satchel::qnn
