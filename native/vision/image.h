// Pictures: PNG and JPEG files as pixels, as Pillow decodes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../llm/errors.h"

namespace satchel::vision {

// As many as Python's: they take 0.3 GB once they are decoded, however small the file is.
inline constexpr uint64_t kMostPixels = 89'000'000;

// A file that is not a picture, or a damaged one; the message says what is wrong with it.
class ImageError : public AdvisedError {
 public:
  using AdvisedError::AdvisedError;
};

struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]

  Image() = default;
  Image(int64_t width, int64_t height)
      : width(width), height(height), rgb(static_cast<size_t>(width * height * 3)) {}
  uint8_t* pixel(int64_t x, int64_t y) { return rgb.data() + (y * width + x) * 3; }
  const uint8_t* pixel(int64_t x, int64_t y) const { return rgb.data() + (y * width + x) * 3; }
};

using Bytes = std::span<const uint8_t>;

// What becomes of transparency: what lies under it is seen, or white.
enum class Alpha { dropped, on_white };

// A PNG or a JPEG as it is meant to be seen, turned as its EXIF or XMP orientation says; `name` is
// for the message. Throws ImageError.
Image read_image(Bytes file, const std::string& name, Alpha alpha = Alpha::dropped);

// One format each, not turned yet; `orientation` is 1 to 8, as EXIF numbers it.
Image read_png(Bytes file, int& orientation, Alpha alpha);
Image read_jpeg(Bytes file, int& orientation);

// Throws ImageError for a size that is none or too large.
void check_size(uint64_t width, uint64_t height);

}  // namespace satchel::vision
