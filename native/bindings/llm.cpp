// The native tokenizer, templates and sampling for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "../llm/errors.h"
#include "../llm/model.h"
#include "../llm/sampler.h"
#include "../llm/template/template.h"
#include "../llm/text_stream.h"
#include "../llm/tokenizer.h"

namespace nb = nanobind;
using namespace satchel;

namespace {

void translate(const std::exception_ptr& pointer, void*) {
  const auto raise = [](const char* name, const AdvisedError& error) {
    nb::object type = nb::module_::import_("satchel.errors").attr(name);
    PyErr_SetObject(type.ptr(), type(error.what(), error.advice).ptr());
  };
  try {
    std::rethrow_exception(pointer);
  } catch (const TemplateError& e) {
    raise("TemplateError", e);
  } catch (const ContextFullError& e) {
    raise("ContextFullError", e);
  } catch (const ConfigError& e) {
    raise("ConfigError", e);
  }
}

// A text's UTF-8, which lives as long as the text; halves of characters are a
// UnicodeEncodeError.
std::string_view utf8_of(const nb::str& text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

using Logits = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstLogits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Array>
auto span_of(const Array& array) {
  return std::span(array.data(), array.shape(0));
}

void bind_tokenizer(nb::module_& m) {
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
      .def_static(
          "of_program",
          [](std::shared_ptr<Program> program) -> std::shared_ptr<Tokenizer> {
            return llm::open_tokenizer(std::move(program));
          },
          "The one that lies compiled in a program, which is mapped; None if there is none.")
      .def_prop_ro("size", &Tokenizer::size)
      .def_prop_ro("tokens", &Tokenizer::tokens, "How many there are: ids may have gaps.")
      .def("exists", &Tokenizer::exists)
      .def("bytes_of",
           [](const Tokenizer& t, uint32_t id) {
             const std::string_view found = t.bytes_of(id);
             return nb::bytes(found.data(), found.size());
           })
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

  using llm::TokenDecoder;
  nb::class_<TokenDecoder>(m, "TokenDecoder", "Text from one token after the other.")
      .def(
          "__init__",
          [](TokenDecoder* self, const Tokenizer& tokenizer, const std::vector<uint32_t>& after,
             std::vector<uint32_t> shown) {
            new (self) TokenDecoder(tokenizer, after, true, std::move(shown));
          },
          nb::arg("tokenizer"), nb::arg("after") = std::vector<uint32_t>(),
          nb::arg("shown") = std::vector<uint32_t>(), nb::keep_alive<1, 2>())
      .def("push",
           [](TokenDecoder& decoder, uint32_t id) {
             std::string text;
             decoder.push(id, text);
             return text;
           })
      .def("finish", [](TokenDecoder& decoder) {
        std::string text;
        decoder.finish(text);
        return text;
      });
  using llm::StopStrings;
  nb::class_<StopStrings>(m, "StopStrings",
                          "Holds text back that could be the beginning of a stop string.")
      .def(nb::init<std::vector<std::string>>(), nb::arg("stop"))
      .def("push", &StopStrings::push, nb::arg("text"), nb::arg("last") = false)
      .def_prop_ro("stopped", [](const StopStrings& s) {
        return s.stopped() ? nb::cast(*s.stopped()) : nb::none();
      });
}

void bind_sampler(nb::module_& m) {
  using llm::Sampler;
  nb::class_<Sampler>(m, "Sampler", "Draws tokens; the same seed and logits give the same tokens.")
      .def(
          "__init__",
          [](Sampler* self, double temperature, uint32_t top_k, double top_p, double min_p,
             double repetition_penalty, double frequency_penalty, double presence_penalty,
             std::vector<std::pair<uint32_t, float>> bias, const std::vector<uint32_t>& seed) {
            llm::SamplingOptions options{temperature,
                                         top_k,
                                         top_p,
                                         min_p,
                                         repetition_penalty,
                                         frequency_penalty,
                                         presence_penalty,
                                         std::move(bias)};
            new (self) Sampler(std::move(options), seed);
          },
          nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"),
          nb::arg("repetition_penalty"), nb::arg("frequency_penalty"), nb::arg("presence_penalty"),
          nb::arg("bias"), nb::arg("seed"))
      .def(
          "penalize",
          [](Sampler& s, const Logits& logits, const std::vector<int64_t>& history,
             size_t answer_from) {
            std::vector<uint32_t> tokens;
            tokens.reserve(history.size());
            for (const int64_t token : history) {
              if (token < 0 || token > UINT32_MAX)
                throw ExecutionError("Token " + std::to_string(token) +
                                     " in the history is outside the vocabulary");
              tokens.push_back(static_cast<uint32_t>(token));
            }
            s.penalize(span_of(logits), tokens, answer_from);
          },
          "Changes the logits in their place.")
      .def("choose",
           [](Sampler& s, const ConstLogits& logits) { return s.choose(span_of(logits)); })
      .def("random", &Sampler::random)
      .def("distribution",
           [](Sampler& s, const ConstLogits& logits) { return s.distribution(span_of(logits)); });
  nb::class_<llm::Random>(m, "Random", "numpy's Generator(PCG64(seed)).random(), one by one.")
      .def("__init__", [](llm::Random* self,
                          const std::vector<uint32_t>& seed) { new (self) llm::Random(seed); })
      .def("next", &llm::Random::next);
}

}  // namespace

void bind_llm(nb::module_& m) {
  nb::register_exception_translator(translate);
  bind_tokenizer(m);
  bind_sampler(m);
  using llm::jinja::Template;
  nb::class_<Template>(m, "Template", "A chat template of the native engine.")
      .def("__init__",
           [](Template* self, const nb::str& source) { new (self) Template(utf8_of(source)); })
      .def(
          "render",
          [](const Template& t, const nb::str& json) {
            std::map<std::string, llm::jinja::Value> values;
            const llm::Json document = llm::Json::parse(utf8_of(json), "values");
            if (document.object() == nullptr) throw ConfigError("the values are not an object");
            for (const auto& [name, value] : *document.object())
              values[name] = llm::jinja::Value::from(value);
            return t.render(std::move(values));
          },
          "The text for values, which are a JSON object.");
}
