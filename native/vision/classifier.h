// A program that sorts pictures into classes.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "../runtime/instance.h"
#include "preprocess.h"

namespace satchel::vision {

struct Prediction {
  size_t index;
  double probability;
};

// Softmax, and the likeliest first; of equal ones the one with the lower number.
std::vector<Prediction> top_classes(std::span<const float> scores, size_t top);

class Classifier {
 public:
  // 0 threads: one for each core. Throws FormatError if the file is not a valid program,
  // ConfigError if it does not say how pictures become its input.
  explicit Classifier(const std::string& path, int threads = 0);

  // A score for each class, all of which have a name. One caller at a time.
  std::vector<float> scores(const Image& image);

  // The name of a class, which lives as long as this.
  const std::string& label(size_t index) const { return classes_[index]; }

  const Program& program() const { return *program_; }
  Instance& instance() { return *instance_; }

 private:
  std::shared_ptr<Program> program_;
  Preprocessing preprocessing_;
  std::deque<std::string> classes_;  // whose places stay where they are
  std::unique_ptr<Instance> instance_;
  size_t method_ = 0;
};

}  // namespace satchel::vision
