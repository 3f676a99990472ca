#include "files.h"

#include <cstdio>
#include <cstdlib>

#include "../llm/errors.h"
#include "../llm/verify.h"

namespace satchel::qnn {

namespace fs = std::filesystem;

namespace {

constexpr const char* kManifest = "manifest.json";

// Where Python's satchel keeps what it made.
fs::path cache_folder() {
  if (const char* chosen = std::getenv("SATCHEL_CACHE"); chosen != nullptr && *chosen != 0)
    return chosen;
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches != nullptr && *caches != 0)
    return fs::path(caches) / "satchel";
  const char* home = std::getenv("HOME");
  return fs::path(home == nullptr ? "." : home) / ".cache" / "satchel";
}

bool has_all(const fs::path& folder, const Manifest& manifest) {
  for (const CompiledMethod& method : manifest.methods) {
    for (const Shard& shard : method.shards) {
      std::error_code error;
      if (!fs::exists(folder / shard.model, error)) return false;
    }
  }
  return true;
}

fs::path compiled_apart(const ProgramFile& file, const Manifest& manifest) {
  const std::string beginning = llm::checksum(file).substr(0, 24) + "-";
  std::error_code error;
  for (fs::directory_iterator at(cache_folder() / "qnn", error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename().string().starts_with(beginning) && has_all(at->path(), manifest))
      return at->path();
  }
  throw ConfigError(
      "the emulator cannot load binaries that share weights, and none were made for it alone",
      "Run the file once with Python's satchel run, which compiles and keeps them; or export it "
      "for a chip whose methods share nothing, as qnn:SM8450.");
}

void write(const fs::path& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wbx");
  const bool written =
      file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if ((file != nullptr && std::fclose(file) != 0) || !written)
    throw ConfigError("cannot write " + path.string(),
                      "The NPU's files need room in a folder that can be written: TMPDIR names "
                      "another.");
}

}  // namespace

std::string_view payload(const ProgramFile& file, const std::string& target,
                         const std::string& name) {
  for (const WeightEntry& weight : file.weights()) {
    if (weight.name != target + "/" + name || weight.kind != WeightKind::u8) continue;
    Sha256 hash;
    hash.update(weight.codes, weight.codes_size);
    if (hash.finish() != weight.digest)
      throw ChecksumError("weights", weight.offset,
                          "the bytes of " + name + " are not those that were written",
                          "Copy or export the file again.");
    return {reinterpret_cast<const char*>(weight.codes), weight.codes_size};
  }
  throw FormatError("weights", 0, "there is no " + name + " for " + target,
                    "Export the file again.");
}

PayloadFolder::PayloadFolder(const ProgramFile& file, const Manifest& manifest, bool is_emulated) {
  if (is_emulated && manifest.shares_weights) {
    folder_ = compiled_apart(file, manifest);
    return;
  }
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  std::string form = (error ? fs::path("/data/local/tmp") : temporary) / "satchel-npu-XXXXXX";
  if (mkdtemp(form.data()) == nullptr)
    throw ConfigError("cannot make a folder " + form, "TMPDIR names another place.");
  folder_ = form;
  is_own_ = true;
  const std::string prefix = manifest.target + "/";
  try {
    for (const WeightEntry& weight : file.weights()) {
      if (!weight.name.starts_with(prefix)) continue;
      const std::string name = weight.name.substr(prefix.size());
      if (name == kManifest) continue;
      if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos)
        throw FormatError("weights", weight.offset, "'" + name + "' is not a file name");
      write(folder_ / name, payload(file, manifest.target, name));
    }
  } catch (...) {
    fs::remove_all(folder_, error);
    throw;
  }
}

PayloadFolder::~PayloadFolder() {
  std::error_code error;
  if (is_own_) fs::remove_all(folder_, error);
}

}  // namespace satchel::qnn
