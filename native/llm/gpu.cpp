#include "gpu.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "errors.h"

#ifdef SATCHEL_GPUS
#include "../vulkan/executor.h"
#include "../vulkan/fitting.h"
#include "../vulkan/peaks.h"
#endif

namespace satchel::llm {

#ifdef SATCHEL_GPUS

namespace {

struct Target {
  size_t device = 0;
  std::optional<int64_t> layers;
};

Target parsed(const std::string& target) {
  Target found;
  size_t part = 0;
  for (size_t at = target.find(':'); at != std::string::npos; ++part) {
    const size_t begin = at + 1;
    at = target.find(':', begin);
    const std::string number = target.substr(begin, at - begin);
    if (part > 1 || number.empty() || number.size() > 3 ||
        !std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; }))
      throw ConfigError("there is no target '" + target + "'",
                        "Write vulkan, vulkan:1 for the second device, or vulkan:0:12 for the "
                        "first one and 12 layers.");
    const int64_t value = std::strtoll(number.c_str(), nullptr, 10);
    if (part == 0) found.device = static_cast<size_t>(value);
    if (part == 1) found.layers = value;
  }
  return found;
}

// Where Python's satchel keeps pipelines too; empty: nowhere.
std::string pipelines_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (const std::string chosen = variable("SATCHEL_CACHE"); !chosen.empty())
    return chosen + "/vulkan";
  const std::string home = variable("HOME"), cache = variable("XDG_CACHE_HOME");
#ifdef __APPLE__
  return home.empty() ? "" : home + "/Library/Caches/satchel/vulkan";
#else
  if (!cache.empty()) return cache + "/satchel/vulkan";
  return home.empty() ? "" : home + "/.cache/satchel/vulkan";
#endif
}

}  // namespace

Gpu open_gpu(const Program& program, const std::string& target, uint64_t cache_memory) {
  Target wanted = parsed(target);
  const vulkan::DeviceInfo info = vulkan::find_device(wanted.device);
  const uint64_t left = info.memory_left();
  std::string remark;
  if (!wanted.layers) {
    const vulkan::FittingLayers fitting = vulkan::fitting_layers(program, left);
    if (fitting.weight_bytes > left) {
      if (fitting.count == 0)
        throw ConfigError(info.name() + " has no memory left for a single layer",
                          "Use --target cpu, or a recipe with fewer bits.");
      wanted.layers = fitting.count;
      remark = info.name() + " has memory for the first " + std::to_string(fitting.count) + " of " +
               std::to_string(fitting.all) + " layers; the CPU runs the others. --target vulkan:" +
               std::to_string(wanted.device) + ":LAYERS chooses.";
    }
  }
  const uint64_t room = vulkan::cache_bytes(program, info.largest_binding(), left);
  Chip chip{"vulkan on " + info.name(), std::move(remark)};
  chip.is_emulated = info.properties.deviceType == vulkan::VK_PHYSICAL_DEVICE_TYPE_CPU;
  if (info.features.cooperative_matrix)
    chip.other_bits_in_blocks = "the GPU multiplies long blocks by cooperative matrices";
  chip.measure_read_bandwidth = [device = wanted.device] {
    return vulkan::measure_peaks(device).read_bytes_s;
  };
  return {std::make_shared<vulkan::VulkanExecutor>(wanted.device, pipelines_folder(),
                                                   wanted.layers.value_or(INT64_MAX)),
          cache_memory > 0 ? std::min(cache_memory, room) : room, std::move(chip)};
}

#else

Gpu open_gpu(const Program&, const std::string& target, uint64_t) {
  throw ConfigError("this build has nothing for " + target + ": it opens no drivers",
                    "Use --target cpu, or a build that is not static (docs/native.md).");
}

#endif

}  // namespace satchel::llm
