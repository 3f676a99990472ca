// How a picture becomes a model's input; the choices travel in the program file.
#pragma once

#include "../llm/json.h"
#include "resize.h"

namespace satchel::vision {

// Parts of what a program says of its pictures. Each throws FormatError if it is damaged.
[[noreturn]] void damaged();
int64_t size_of(const llm::Json& value, int64_t most);  // 1 to `most`
std::array<double, 3> channels_of(const llm::Json& value, bool positive);

struct Preprocessing {
  int64_t resize = 0;                       // of the shorter side
  int64_t crop_height = 0, crop_width = 0;  // of the middle, which is cut out
  std::array<double, 3> mean{}, std{};
  Interpolation interpolation = Interpolation::bilinear;

  // Throws FormatError if it is damaged.
  static Preprocessing read(const llm::Json& parts);

  // [3, crop_height, crop_width].
  std::vector<float> prepare(const Image& image) const;
};

}  // namespace satchel::vision
