#include "preprocess.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace satchel::vision {

namespace {

constexpr int64_t kMostResized = 1 << 24;  // pixels of a whole picture before its middle is cut out
constexpr int64_t kMostSide = 1 << 14;

// The middle of a side; halves go to the even number.
int64_t middle(int64_t size, int64_t part) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(size - part) / 2));
}

}  // namespace

void damaged() {
  throw FormatError("metadata", 0, "the preprocessing of images is damaged",
                    "Export the program again.");
}

int64_t size_of(const llm::Json& value, int64_t most) {
  const int64_t* size = value.whole();
  if (size == nullptr || *size < 1 || *size > most) damaged();
  return *size;
}

std::array<double, 3> channels_of(const llm::Json& value, bool positive) {
  const llm::JsonList* list = value.list();
  if (list == nullptr || list->size() != 3) damaged();
  std::array<double, 3> found{};
  for (size_t c = 0; c < 3; ++c) {
    found[c] = (*list)[c].number(NAN);
    if (!std::isfinite(found[c]) || (positive && found[c] <= 0)) damaged();
  }
  return found;
}

Preprocessing Preprocessing::read(const llm::Json& parts) {
  Preprocessing made;
  made.resize = size_of(parts["resize"], kMostSide);
  const llm::JsonList* crop = parts["crop"].list();
  if (crop == nullptr || crop->size() != 2) damaged();
  made.crop_height = size_of((*crop)[0], kMostSide);
  made.crop_width = size_of((*crop)[1], kMostSide);
  made.mean = channels_of(parts["mean"], false);
  made.std = channels_of(parts["std"], true);
  const std::string* name = parts["interpolation"].text();
  const auto interpolation = name == nullptr ? std::nullopt : interpolation_named(*name);
  if (!interpolation) damaged();
  made.interpolation = *interpolation;
  return made;
}

std::vector<float> Preprocessing::prepare(const Image& image) const {
  // The shorter side is exact, the longer cut to whole.
  const int64_t shorter = std::min(image.width, image.height);
  const int64_t longer = std::max(image.width, image.height);
  const auto scaled =
      static_cast<int64_t>(static_cast<double>(resize * longer) / static_cast<double>(shorter));
  const bool upright = image.width <= image.height;
  int64_t width = upright ? resize : scaled, height = upright ? scaled : resize;
  int64_t left = middle(width, crop_width), top = middle(height, crop_height);

  Image made;
  const Image* picture = &image;
  const bool is_wide = width >= height;
  if (width * height > kMostResized && (is_wide ? left : top) > 0) {
    // Of a very long picture, only what will be cut out of its long side.
    std::array<float, 4> box{0, 0, static_cast<float>(image.width),
                             static_cast<float>(image.height)};
    const size_t side = is_wide ? 0 : 1;
    int64_t &size = is_wide ? width : height, &start = is_wide ? left : top;
    const double ratio =
        static_cast<double>(is_wide ? image.width : image.height) / static_cast<double>(size);
    size = is_wide ? crop_width : crop_height;
    box[side] = static_cast<float>(static_cast<double>(start) * ratio);
    box[side + 2] = static_cast<float>(static_cast<double>(start + size) * ratio);
    start = 0;
    made = vision::resize(image, width, height, interpolation, box);
    picture = &made;
  } else if (width != image.width || height != image.height) {
    made = vision::resize(image, width, height, interpolation);
    picture = &made;
  }

  const auto plane = static_cast<size_t>(crop_height * crop_width);
  std::vector<float> input(3 * plane);
  for (int64_t y = 0; y < crop_height; ++y) {
    for (int64_t x = 0; x < crop_width; ++x) {
      const int64_t column = left + x, row = top + y;
      const bool inside =
          column >= 0 && column < picture->width && row >= 0 && row < picture->height;
      for (size_t c = 0; c < 3; ++c) {
        // What lies outside of a smaller picture is black.
        const float value =
            inside ? static_cast<float>(picture->pixel(column, row)[c]) / 255.0f : 0;
        input[c * plane + static_cast<size_t>(y * crop_width + x)] =
            (value - static_cast<float>(mean[c])) / static_cast<float>(std[c]);
      }
    }
  }
  return input;
}

}  // namespace satchel::vision
