// satchel._native: the native core as a Python module.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_chain(nb::module_& m);
void bind_kernels(nb::module_& m);
void bind_llm(nb::module_& m);
void bind_program(nb::module_& m);
void bind_speech(nb::module_& m);
void bind_vision(nb::module_& m);
void bind_vulkan(nb::module_& m);

NB_MODULE(_native, m) {
  nb::module_ kernels =
      m.def_submodule("kernels", "The kernels of each instruction set, one by one.");
  bind_kernels(kernels);
  bind_chain(m);
  bind_program(m);
  bind_llm(m);
  bind_speech(m);
  bind_vision(m);
  nb::module_ vulkan = m.def_submodule("vulkan", "The GPUs of this machine.");
  bind_vulkan(vulkan);
}
