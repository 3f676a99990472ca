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

}  // namespace satchel::vision
