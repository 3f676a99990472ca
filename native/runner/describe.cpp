// inspect, verify and tokenize, and how files are read.
#include <cstdio>

#include "../llm/errors.h"
#include "../llm/gpu.h"
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

std::shared_ptr<Model> open_model(const Arguments& given, const std::string& path) {
  const auto threads = static_cast<int>(given.whole("threads", 1, kMostThreads).value_or(0));
  std::string target = Model::kCpu;
  if (const auto asked = given.text("target")) {
    target = *asked;
  } else if (const std::string usual = targets_of(read_metadata(ProgramFile(path)))[0];
             usual.starts_with("qnn:") || is_gpu(usual)) {
    target = usual;
  }
  if (target.starts_with("qnn:")) watch_vendor_crashes();
  const OthersOutput elsewhere;
  auto model = Model::open(path, threads, 0, target);
  if (model->engine().is_emulated())
    say("This runs on an emulator: it computes what the chip would, and not as fast.");
  if (const std::string remark = model->engine().remark(); !remark.empty()) say(remark);
  return model;
}

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
  emit(path + "  " + megabytes(file.size()));
  emit("model      " + text("name") + ", " + text("architecture"));
  if (const std::string* recipe = metadata["recipe"]["description"].text())
    emit("recipe     " + *recipe);
  for (const Method& method : program.methods()) {
    std::string line = "method     " + method.name + ":";
    for (const uint32_t id : method.inputs) {
      const ValueInfo& value = method.values[id];
      line += " " + value.name + " " + shape_text(method, value);
    }
    emit(line + "; " + std::to_string(method.nodes.size()) + " nodes, arena " +
         megabytes(method.arena_size));
  }
  const bool native = file.find_section(SectionKind::text) != nullptr;
  emit(std::string("tokenizer  ") + (native ? "compiled" : "for Python only"));
  emit("checksum   " + checksum(file));
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
    emit(path + ": " + megabytes(file.size()) + " and " + std::to_string(file.weights().size()) +
         " weights are intact\nchecksum " + checksum(file));
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
