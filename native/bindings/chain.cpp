// How tokens are chosen where the logits are, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "../runtime/chain.h"

namespace nb = nanobind;
using namespace satchel;

void bind_chain(nb::module_& m) {
  nb::class_<TokenRule>(m, "TokenRule", "How a sequence's tokens are chosen in a chain.")
      .def(
          "__init__",
          [](TokenRule* self, float temperature, uint32_t top_k, float top_p, float min_p,
             float repetition, float frequency, float presence,
             std::vector<std::pair<int32_t, float>> bias, std::vector<int32_t> text,
             uint32_t answer_from) {
            new (self)
                TokenRule{temperature, top_k,    top_p,           min_p,           repetition,
                          frequency,   presence, std::move(bias), std::move(text), answer_from};
          },
          nb::arg("temperature") = 0.0f, nb::arg("top_k") = 0, nb::arg("top_p") = 1.0f,
          nb::arg("min_p") = 0.0f, nb::arg("repetition_penalty") = 1.0f,
          nb::arg("frequency_penalty") = 0.0f, nb::arg("presence_penalty") = 0.0f,
          nb::arg("bias") = std::vector<std::pair<int32_t, float>>(),
          nb::arg("text") = std::vector<int32_t>(), nb::arg("answer_from") = 0);
}
