// run --input: the classes of pictures.
#include "classify.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "../llm/errors.h"
#include "../llm/model.h"
#include "../llm/verify.h"
#include "../vision/classifier.h"
#include "commands.h"

namespace satchel::runner {

namespace {

using namespace satchel::vision;
using llm::Json;
using llm::JsonList;
using llm::JsonObject;

constexpr std::string_view kSuffixes[] = {".jpg", ".jpeg", ".png"};

bool is_folder(const std::string& path) {
  struct stat found{};
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

bool has_suffix(std::string path) {
  std::transform(path.begin(), path.end(), path.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                     [&](std::string_view suffix) { return path.ends_with(suffix); });
}

void find_pictures(const std::string& folder, std::vector<std::string>& found) {
  DIR* open = opendir(folder.c_str());
  if (open == nullptr) throw ConfigError("cannot open " + folder, "Check the path.");
  std::vector<std::string> names;
  while (const dirent* entry = readdir(open)) names.emplace_back(entry->d_name);
  closedir(open);
  for (const std::string& name : names) {
    if (name == "." || name == "..") continue;
    const std::string path = (folder == "/" ? "" : folder) + "/" + name;
    struct stat status{};  // links to folders are not followed: they may lead round in circles
    if (lstat(path.c_str(), &status) != 0) continue;
    if (S_ISDIR(status.st_mode)) {
      find_pictures(path, found);
    } else if (has_suffix(path) && !is_folder(path)) {
      found.push_back(path);
    }
  }
}

// Folder by folder: a name ends before one that goes on.
bool is_before(const std::string& a, const std::string& b) {
  const auto rank = [](char c) { return c == '/' ? 0 : 1 + static_cast<unsigned char>(c); };
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [&](char x, char y) { return rank(x) < rank(y); });
}

std::vector<std::string> inputs_of(const Arguments& given) {
  std::vector<std::string> inputs;
  for (std::string name : given.texts("input")) {
    if (name == "-" || !is_folder(name)) {
      inputs.push_back(name);
      continue;
    }
    while (name.size() > 1 && name.ends_with('/')) name.pop_back();
    std::vector<std::string> found;
    find_pictures(name, found);
    if (found.empty()) throw ConfigError(name + " has no images in it");
    std::sort(found.begin(), found.end(), is_before);
    inputs.insert(inputs.end(), found.begin(), found.end());
  }
  return inputs;
}

Image open_picture(const std::string& name) {
  const std::string data = read_file(name);
  return read_image({reinterpret_cast<const uint8_t*>(data.data()), data.size()},
                    name == "-" ? "standard input" : name);
}

// The scores of --iterations runs, and how long one takes.
struct Repeats {
  int64_t warmup, iterations;
  std::chrono::duration<double> rest;

  explicit Repeats(const Arguments& given)
      : warmup(given.whole("warmup", 0).value_or(0)),
        iterations(given.whole("iterations", 1).value_or(1)),
        rest(given.number("cool-down").value_or(0)) {}

  std::vector<float> run(Classifier& classifier, const Image& image, JsonObject& seconds) const {
    std::vector<float> scores;
    std::vector<double> times;
    for (int64_t i = 0; i < warmup + iterations; ++i) {
      if (i > 0) std::this_thread::sleep_for(rest);
      const auto start = std::chrono::steady_clock::now();
      scores = classifier.scores(image);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (i >= warmup) times.push_back(taken.count());
    }
    if (iterations > 1 || warmup > 0) {
      double sum = 0;
      for (const double time : times) sum += time;
      seconds.emplace_back("median_s", median(times));
      seconds.emplace_back("mean_s", sum / static_cast<double>(times.size()));
    }
    return scores;
  }
};

}  // namespace

bool is_classifier(const std::string& path) {
  const Program program(path);
  return std::none_of(program.methods().begin(), program.methods().end(),
                      [](const Method& method) { return method.name == "kv_forward"; });
}

int classify(const Arguments& given) {
  const auto threads = given.whole("threads", 1);
  const auto top = static_cast<size_t>(given.whole("top", 1).value_or(5));
  const Repeats repeats(given);
  if (given.text("target").value_or(llm::Model::kCpu) != llm::Model::kCpu)
    throw ConfigError("classes of pictures are computed on the CPU here",
                      "Leave --target out, or use Python's satchel.");
  Classifier classifier(given.places()[0], static_cast<int>(threads.value_or(0)));
  const std::string usual =
      llm::targets_of(llm::read_metadata(classifier.program().file())).front();
  if (usual.starts_with("qnn:") && !given.has("target"))
    say("The file is for " + usual + ", and is run on the CPU here (--target cpu).");
  if (given.has("verify")) llm::verify(classifier.program().file());
  const bool json = given.has("json");
  const std::vector<std::string> inputs = inputs_of(given);
  JsonList results;
  size_t read = 0;
  for (const std::string& input : inputs) {
    const std::string name = input == "-" ? "standard input" : input;
    JsonObject result{{"input", name}}, seconds;
    Image image;
    try {
      image = open_picture(input);
    } catch (const AdvisedError& error) {
      if (inputs.size() == 1) throw;
      // The others are still worth an answer.
      say(name + ": " + error.what());
      result.emplace_back("error", error.what());
      results.emplace_back(std::move(result));
      continue;
    }
    ++read;
    const std::vector<float> scores = repeats.run(classifier, image, seconds);
    if (!json && inputs.size() > 1) emit(name);
    JsonList classes;
    for (const Prediction& one : top_classes(scores, top)) {
      const std::string& label = classifier.label(one.index);
      classes.push_back(JsonObject{{"label", label},
                                   {"index", static_cast<int64_t>(one.index)},
                                   {"probability", one.probability}});
      if (!json) std::printf("%6.2f%%  %s\n", one.probability * 100, shown(label).c_str());
    }
    if (!json && !seconds.empty()) {
      std::printf("median %.2f ms, mean %.2f ms\n", seconds[0].second.number(0) * 1e3,
                  seconds[1].second.number(0) * 1e3);
    }
    result.emplace_back("classes", std::move(classes));
    result.insert(result.end(), seconds.begin(), seconds.end());
    results.emplace_back(std::move(result));
  }
  if (read == 0)
    throw ConfigError("none of " + std::to_string(inputs.size()) + " inputs can be read");
  if (json) {
    CpuExecutor& cpu = classifier.instance().cpu();
    print_json(Json(JsonObject{{"results", std::move(results)},
                               {"threads", static_cast<int64_t>(cpu.threads())},
                               {"kernels", cpu.kernels()}}));
  }
  return 0;
}

}  // namespace satchel::runner
