// satchel._native.vulkan: the GPUs of this machine.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../vulkan/executor.h"
#include "../vulkan/fitting.h"
#include "../vulkan/peaks.h"

namespace nb = nanobind;
using namespace satchel;

namespace {

nb::list devices() {
  nb::list list;
  for (const vulkan::DeviceInfo& info : vulkan::Library::get().devices()) {
    nb::dict d;
    d["name"] = info.name();
    d["type"] = info.type();
    d["api"] = info.api_version();
    d["memory_bytes"] = info.memory_bytes();
    d["memory_left_bytes"] = info.memory_left();
    d["largest_binding"] = info.largest_binding();
    nb::list features;
    if (info.features.integer_dot) features.append("integer dot products");
    if (info.features.cooperative_matrix) features.append("cooperative matrices");
    if (info.features.import_step > 0) features.append("shared memory");
    d["features"] = features;
    list.append(d);
  }
  return list;
}

}  // namespace

void bind_vulkan(nb::module_& m) {
  m.def("devices", &devices,
        "The devices with Vulkan 1.1 or newer, GPUs first. Raises ExecutionError if there is no "
        "Vulkan.");
  m.def("ops", &vulkan::names_of_ops, "The ops that there are shaders for.");
  m.def(
      "executor",
      [](size_t device, std::string cache_folder, int64_t layers) -> std::shared_ptr<Executor> {
        nb::gil_scoped_release release;
        return std::make_shared<vulkan::VulkanExecutor>(device, std::move(cache_folder), layers);
      },
      nb::arg("device") = 0, nb::arg("cache_folder") = "", nb::arg("layers") = INT64_MAX,
      "An executor on a device, by its number; its pipelines are kept in the folder. Of a language "
      "model it takes the first layers.");
  m.def(
      "fitting_layers",
      [](const Program& program, uint64_t memory_left) {
        const vulkan::FittingLayers found = vulkan::fitting_layers(program, memory_left);
        return nb::make_tuple(found.count, found.all, found.weight_bytes);
      },
      nb::arg("program"), nb::arg("memory_left"),
      "How many layers there is memory for if not for all, of how many, and the bytes of all "
      "weights.");
  m.def("cache_bytes", &vulkan::cache_bytes, nb::arg("program"), nb::arg("largest_binding"),
        nb::arg("memory_left"), "What the caches of all sequences may take.");
  m.def(
      "measure",
      [](size_t device) {
        vulkan::Peaks peaks;
        {
          nb::gil_scoped_release release;
          peaks = vulkan::measure_peaks(device);
        }
        nb::dict d;
        d["read_bytes_s"] = peaks.read_bytes_s;
        d["multiply_adds_s"] = peaks.multiply_adds_s;
        return d;
      },
      nb::arg("device") = 0,
      "What a device can read of its memory, and how many bytes it multiplies and adds, in a "
      "second; 0 where it cannot tell.");
}
