// The native tokenizer for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "../llm/tokenizer.h"
#include "../runtime/program.h"

namespace nb = nanobind;
using namespace satchel;

namespace {

// A text's UTF-8, which lives as long as the text; halves of characters are a UnicodeEncodeError.
std::string_view utf8_of(const nb::str& text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

}  // namespace

void bind_llm(nb::module_& m) {
  using llm::Tokenizer;
  nb::class_<Tokenizer>(m, "Tokenizer", "A compiled tokenizer: text to tokens and back.")
      .def_static("from_bytes",
                  [](const nb::bytes& section) {
                    // Numbers are read where they lie, so that these must be aligned.
                    auto copy = std::make_shared<std::vector<double>>(section.size() / 8 + 1);
                    std::memcpy(copy->data(), section.c_str(), section.size());
                    const auto* bytes = reinterpret_cast<const uint8_t*>(copy->data());
                    return std::make_shared<Tokenizer>(std::span(bytes, section.size()), 0, copy);
                  })
      .def_prop_ro("size", &Tokenizer::size)
      .def(
          "encode",
          [](const Tokenizer& t, const nb::str& text, bool parse_special) {
            const std::string_view utf8 = utf8_of(text);
            nb::gil_scoped_release release;
            return t.encode(utf8, parse_special);
          },
          nb::arg("text"), nb::arg("parse_special") = true)
      .def("encode_prompt",
           [](const Tokenizer& t, const nb::str& text) {
             const std::string_view utf8 = utf8_of(text);
             nb::gil_scoped_release release;
             return t.encode_prompt(utf8);
           })
      .def(
          "decode",
          [](const Tokenizer& t, const std::vector<uint32_t>& ids, bool skip_special) {
            nb::gil_scoped_release release;
            return t.decode(ids, skip_special);
          },
          nb::arg("ids"), nb::arg("skip_special") = true)
      .def("is_end", &Tokenizer::is_end)
      .def("is_visible", &Tokenizer::is_visible);
}
