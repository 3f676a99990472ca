#include "preprocessing.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace satchel::vision_language {

namespace {

using vision::Image;
using vision::Interpolation;

constexpr int64_t kMostRows = 1 << 20;
constexpr uint64_t kMostPixels = 4 * vision::kMostPixels;  // of a picture that is made on the way

// By Pillow's number.
Interpolation interpolation_of(const llm::Json& value) {
  static constexpr Interpolation kKnown[] = {Interpolation::nearest, Interpolation::lanczos,
                                             Interpolation::bilinear, Interpolation::bicubic};
  const int64_t* number = value.whole();
  if (number == nullptr || *number < 0 || *number > 5) damaged();
  if (*number >= 4)
    throw ConfigError("pictures are not resized by boxes or Hamming's window here",
                      "Use Python's satchel.");
  return kKnown[*number];
}

}  // namespace

Preprocessing::Preprocessing(const llm::Json& about) : rows_(size_of(about["rows"], kMostRows)) {
  const llm::Json& parts = about["preprocessing"];
  mean_ = channels_of(parts["mean"], false);
  std_ = channels_of(parts["std"], true);
  interpolation_ = interpolation_of(parts["resample"]);
}

std::unique_ptr<Preprocessing> Preprocessing::read(const llm::Json& about) {
  const std::string* kind = about["kind"].text();
  if (kind == nullptr) damaged();
  if (*kind == "llava") return read_clip(about);
  if (*kind == "idefics3") return read_tiles(about);
  if (*kind == "llava_next" || *kind == "llava_onevision") return read_grid(about);
  throw ConfigError("the program prepares images as '" + *kind + "' does, which is not known here",
                    "Use a newer satchel-run.");
}

Image Preprocessing::resized(const Image& picture, int64_t width, int64_t height) const {
  if (width == picture.width && height == picture.height) return picture;
  return vision::resize(picture, width, height, interpolation_);
}

void require_possible(int64_t width, int64_t height) {
  if (static_cast<uint64_t>(width) * static_cast<uint64_t>(height) > kMostPixels)
    throw vision::ImageError("a picture would have " + std::to_string(width) + " by " +
                                 std::to_string(height) + " pixels on its way to the model",
                             "Shrink it.");
}

Image Preprocessing::in_square(const Image& picture) const {
  const int64_t side = std::max(picture.width, picture.height);
  require_possible(side, side);
  Image made(side, side);
  std::array<uint8_t, 3> colour{};
  for (size_t c = 0; c < 3; ++c)
    colour[c] = static_cast<uint8_t>(std::clamp(mean_[c] * 255, 0.0, 255.0));
  for (size_t i = 0; i < made.rgb.size(); ++i) made.rgb[i] = colour[i % 3];
  const int64_t top = (side - picture.height) / 2, left = (side - picture.width) / 2;
  for (int64_t y = 0; y < picture.height; ++y)
    std::copy_n(picture.pixel(0, y), picture.width * 3, made.pixel(left, top + y));
  return made;
}

std::vector<float> Preprocessing::normalized(const Image& frame) const {
  std::vector<float> made(frame.rgb.size());
  for (size_t i = 0; i < made.size(); ++i) {
    // In the processors' steps and widths, so that every bit is theirs.
    const auto scaled = static_cast<float>(static_cast<double>(frame.rgb[i]) * (1.0 / 255));
    made[i] = (scaled - static_cast<float>(mean_[i % 3])) / static_cast<float>(std_[i % 3]);
  }
  return made;
}

Image cut_out(const Image& picture, const vision::Area& area) {
  Image made(area.width, area.height);
  const int64_t left = std::max<int64_t>(0, -area.left);
  const int64_t right = std::min(area.width, picture.width - area.left);
  for (int64_t y = 0; y < area.height; ++y) {
    const int64_t from = area.top + y;
    if (from < 0 || from >= picture.height || left >= right) continue;
    std::memcpy(made.pixel(left, y), picture.pixel(area.left + left, from),
                static_cast<size_t>(right - left) * 3);
  }
  return made;
}

}  // namespace satchel::vision_language
