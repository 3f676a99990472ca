// satchel._native.vulkan: the GPUs of this machine.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../vulkan/executor.h"

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
    d["largest_binding"] = info.largest_binding();
    nb::list features;
    if (info.features.integer_dot) features.append("integer dot products");
    if (info.features.cooperative_matrix) features.append("cooperative matrices");
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
      [](size_t device, std::string cache_folder) -> std::shared_ptr<Executor> {
        nb::gil_scoped_release release;
        return std::make_shared<vulkan::VulkanExecutor>(device, std::move(cache_folder));
      },
      nb::arg("device") = 0, nb::arg("cache_folder") = "",
      "An executor on a device, by its number; its pipelines are kept in the folder.");
}
