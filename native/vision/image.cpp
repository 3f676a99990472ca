#include "image.h"

#include <algorithm>
#include <utility>

namespace satchel::vision {

namespace {

bool begins(Bytes file, std::span<const uint8_t> with) {
  return file.size() >= with.size() && std::equal(with.begin(), with.end(), file.begin());
}

// The picture with its columns mirrored, its rows mirrored, or rows and columns exchanged first.
Image turned(Image image, bool exchange, bool mirror_columns, bool mirror_rows) {
  Image made(exchange ? image.height : image.width, exchange ? image.width : image.height);
  for (int64_t y = 0; y < made.height; ++y) {
    const int64_t row = mirror_rows ? made.height - 1 - y : y;
    for (int64_t x = 0; x < made.width; ++x) {
      const int64_t column = mirror_columns ? made.width - 1 - x : x;
      const uint8_t* from = exchange ? image.pixel(row, column) : image.pixel(column, row);
      std::copy_n(from, 3, made.pixel(x, y));
    }
  }
  return made;
}

Image upright(Image image, int orientation) {
  switch (orientation) {
    case 2:
      return turned(std::move(image), false, true, false);
    case 3:
      return turned(std::move(image), false, true, true);
    case 4:
      return turned(std::move(image), false, false, true);
    case 5:
      return turned(std::move(image), true, false, false);
    case 6:
      return turned(std::move(image), true, true, false);
    case 7:
      return turned(std::move(image), true, true, true);
    case 8:
      return turned(std::move(image), true, false, true);
    default:
      return image;
  }
}

}  // namespace

void check_size(uint64_t width, uint64_t height) {
  if (width == 0 || height == 0) throw ImageError("it has no pixels");
  if (width * height > kMostPixels || width > kMostPixels || height > kMostPixels) {
    throw ImageError("it has " + std::to_string(width) + " by " + std::to_string(height) +
                     " pixels, which is too large");
  }
}

Image read_image(Bytes file, const std::string& name, Alpha alpha) {
  static constexpr uint8_t kPng[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  static constexpr uint8_t kJpeg[] = {0xFF, 0xD8, 0xFF};
  try {
    int orientation = 1;
    if (begins(file, kPng)) {
      Image image = read_png(file, orientation, alpha);
      return upright(std::move(image), orientation);
    }
    if (begins(file, kJpeg)) {
      Image image = read_jpeg(file, orientation);
      return upright(std::move(image), orientation);
    }
  } catch (const ImageError& error) {
    throw ImageError(name + " is not an image that can be read: " + error.what(),
                     "Give another PNG or JPEG.");
  }
  throw ImageError(name + " is not an image that can be read", "Give a PNG or a JPEG.");
}

}  // namespace satchel::vision
