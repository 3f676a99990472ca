// inspect, verify and tokenize, and what all commands print with.
#include <cstdio>

#include "../llm/errors.h"
#include "../llm/model.h"
#include "../llm/verify.h"
#include "../runtime/op.h"
#include "arguments.h"
#include "commands.h"

namespace satchel::runner {

namespace {

using namespace satchel::llm;

std::string only_program(const Arguments& given) {
  if (given.places().size() != 1) throw UsageError("give one program");
  return given.places()[0];
}

std::string shape_text(const Method& method, const ValueInfo& value) {
  std::string text = std::string(dtype_name(value.dtype)) + "[";
  for (size_t i = 0; i < value.shape.size(); ++i) {
    if (i > 0) text += ", ";
    const int64_t dim = value.shape[i];
    if (dim >= 0) {
      text += std::to_string(dim);
    } else {
      const SymbolInfo& symbol = method.symbols[static_cast<size_t>(-1 - dim)];
      text += symbol.name + "<=" + std::to_string(symbol.maximum);
    }
  }
  return text + "]";
}

Json methods_json(const Program& program) {
  JsonList list;
  for (const Method& method : program.methods()) {
    const auto values = [&](const std::vector<uint32_t>& ids) {
      JsonList found;
      for (const uint32_t id : ids) {
        const ValueInfo& value = method.values[id];
        found.push_back(JsonObject{{"name", value.name}, {"type", shape_text(method, value)}});
      }
      return found;
    };
    list.push_back(JsonObject{{"name", method.name},
                              {"inputs", values(method.inputs)},
                              {"outputs", values(method.outputs)},
                              {"nodes", static_cast<int64_t>(method.nodes.size())},
                              {"arena_bytes", static_cast<int64_t>(method.arena_size)}});
  }
  return Json(std::move(list));
}

}  // namespace

// Not by streams: these would make a static binary a third larger.
std::string read_file(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) throw ConfigError("cannot open " + path, "Check the path.");
  std::string text;
  char block[4096];
  for (size_t count; (count = std::fread(block, 1, sizeof block, file)) > 0;)
    text.append(block, count);
  const bool failed = std::ferror(file) != 0;
  if (file != stdin) std::fclose(file);
  if (failed) throw ConfigError("cannot read " + path, "Give a file that can be read.");
  return text;
}

void say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

void print_json(const Json& document) { std::printf("%s\n", document.dump().c_str()); }

std::string megabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

int inspect(int argc, char** argv) {
  const Arguments given(argc, argv, {"json"});
  const std::string path = only_program(given);
  const Program program(path);
  const ProgramFile& file = program.file();
  const Json metadata = read_metadata(file);
  if (given.has("json")) {
    JsonList sections;
    for (const SectionRecord& s : file.sections()) {
      sections.push_back(JsonObject{{"name", s.name},
                                    {"offset", static_cast<int64_t>(s.offset)},
                                    {"size", static_cast<int64_t>(s.size)}});
    }
    print_json(Json(JsonObject{{"file_size_bytes", static_cast<int64_t>(file.size())},
                               {"checksum", checksum(file)},
                               {"recipe", metadata["recipe"]},
                               {"placement", metadata["placement"]},
                               {"methods", methods_json(program)},
                               {"sections", std::move(sections)},
                               {"metadata", metadata}}));
    return 0;
  }
  const auto text = [&](const char* name) {
    const std::string* found = metadata[name].text();
    return found == nullptr ? std::string("unknown") : *found;
  };
  std::printf("%s  %s\n", path.c_str(), megabytes(file.size()).c_str());
  std::printf("model      %s, %s\n", text("name").c_str(), text("architecture").c_str());
  if (const std::string* recipe = metadata["recipe"]["description"].text())
    std::printf("recipe     %s\n", recipe->c_str());
  for (const Method& method : program.methods()) {
    std::printf("method     %s:", method.name.c_str());
    for (const uint32_t id : method.inputs) {
      const ValueInfo& value = method.values[id];
      std::printf(" %s %s", value.name.c_str(), shape_text(method, value).c_str());
    }
    std::printf("; %zu nodes, arena %s\n", method.nodes.size(),
                megabytes(method.arena_size).c_str());
  }
  const bool native = file.find_section(SectionKind::text) != nullptr;
  std::printf("tokenizer  %s\n", native ? "compiled" : "for Python only");
  std::printf("checksum   %s\n", checksum(file).c_str());
  return 0;
}

int verify(int argc, char** argv) {
  const Arguments given(argc, argv, {"json"});
  const std::string path = only_program(given);
  const Program program(path);
  const ProgramFile& file = program.file();
  llm::verify(file);
  if (given.has("json")) {
    print_json(Json(JsonObject{{"ok", true},
                               {"file_size_bytes", static_cast<int64_t>(file.size())},
                               {"checksum", checksum(file)}}));
  } else {
    std::printf("%s: %s and %zu weights are intact\nchecksum %s\n", path.c_str(),
                megabytes(file.size()).c_str(), file.weights().size(), checksum(file).c_str());
  }
  return 0;
}

int tokenize(int argc, char** argv) {
  const Arguments given(argc, argv, {"json", "raw"});
  if (given.places().size() != 2) throw UsageError("tokenize takes a program and a text");
  const auto model = Model::open(given.places()[0], 1);
  JsonList ids;
  for (const uint32_t id : model->tokenizer().encode(given.places()[1]))
    ids.emplace_back(static_cast<int64_t>(id));
  print_json(given.has("json") ? Json(JsonObject{{"tokens", std::move(ids)}})
                               : Json(std::move(ids)));
  return 0;
}

}  // namespace satchel::runner
