#include "classifier.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../llm/model.h"

namespace satchel::vision {

std::vector<Prediction> top_classes(std::span<const float> scores, size_t top) {
  if (scores.empty()) return {};
  const double most = *std::max_element(scores.begin(), scores.end());
  std::vector<double> chances;
  for (const float score : scores) chances.push_back(std::exp(score - most));
  const double sum = std::accumulate(chances.begin(), chances.end(), 0.0);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto known = [&](size_t i) { return std::isnan(chances[i]) ? -1.0 : chances[i]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return known(a) > known(b); });
  order.resize(std::min(top, order.size()));
  std::vector<Prediction> found;
  for (const size_t index : order) found.push_back({index, chances[index] / sum});
  return found;
}

Classifier::Classifier(const std::string& path, int threads)
    : program_(std::make_shared<Program>(path)) {
  const llm::Json metadata = llm::read_metadata(program_->file());
  const llm::Json& parts = metadata["vision"];
  if (parts.object() == nullptr) {
    throw ConfigError(path + " does not say how images become its input",
                      "Export it with preprocessing and classes.");
  }
  preprocessing_ = Preprocessing::read(parts["preprocessing"]);
  const llm::JsonList* classes = parts["classes"].list();
  if (classes == nullptr)
    throw FormatError("metadata", 0, "the class names are damaged", "Export the program again.");
  for (const llm::Json& name : *classes) {
    if (name.text() == nullptr)
      throw FormatError("metadata", 0, "the class names are damaged", "Export the program again.");
    classes_.push_back(*name.text());
  }
  const auto& methods = program_->methods();
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [](const Method& method) { return method.name == "forward"; });
  if (found == methods.end()) throw ConfigError(path + " has no method 'forward'");
  method_ = static_cast<size_t>(found - methods.begin());
  const auto input = static_cast<uint64_t>(3 * preprocessing_.crop_height *
                                           preprocessing_.crop_width * int64_t{sizeof(float)});
  if (found->inputs.size() != 1 || found->values[found->inputs[0]].max_bytes < input)
    throw ConfigError(path + " does not take one picture of the size that it says");
  instance_ = std::make_unique<Instance>(program_, threads);
}

std::vector<float> Classifier::scores(const Image& image) {
  const std::vector<float> input = preprocessing_.prepare(image);
  const ArrayView view{
      DType::f32, {1, 3, preprocessing_.crop_height, preprocessing_.crop_width}, input.data()};
  const std::lock_guard<std::recursive_mutex> lock(instance_->mutex());
  const std::vector<ArrayView> results = instance_->run(method_, {view});
  if (results.size() != 1 || results[0].dtype != DType::f32 || results[0].shape.size() != 2 ||
      results[0].shape[0] != 1)
    throw ExecutionError("the program does not give one score a class");
  const auto count = static_cast<size_t>(results[0].shape[1]);
  while (classes_.size() < count) classes_.push_back("class " + std::to_string(classes_.size()));
  const auto* first = static_cast<const float*>(results[0].data);
  return {first, first + count};
}

}  // namespace satchel::vision
