// Pictures made smaller or larger, as Pillow does it.
#pragma once

#include <array>
#include <optional>

#include "image.h"

namespace satchel::vision {

enum class Interpolation { nearest, bilinear, bicubic, lanczos };

std::optional<Interpolation> interpolation_named(const std::string& name);

// `box` is the part of the picture that is wanted: left, top, right, bottom.
Image resize(const Image& image, int64_t width, int64_t height, Interpolation interpolation,
             const std::array<float, 4>& box);
Image resize(const Image& image, int64_t width, int64_t height, Interpolation interpolation);

// Some of the pixels of a picture.
struct Area {
  int64_t left, top, width, height;
};

// What lies there in the resized picture, of which no more is made.
Image resize_part(const Image& image, int64_t width, int64_t height, Interpolation interpolation,
                  const Area& part);

}  // namespace satchel::vision
