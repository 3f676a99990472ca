#include "resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace satchel::vision {

namespace {

constexpr int kBits = 22;  // behind the point of a weight: 8 bits are a pixel's, 2 its sums'

struct Filter {
  double (*weight)(double);
  double reach;
};

double bilinear(double x) { return std::max(0.0, 1.0 - std::fabs(x)); }

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= 3.14159265358979323846;
  return std::sin(x) / x;
}

double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

Filter filter_of(Interpolation interpolation) {
  switch (interpolation) {
    case Interpolation::bicubic:
      return {bicubic, 2};
    case Interpolation::lanczos:
      return {lanczos, 3};
    default:
      return {bilinear, 1};
  }
}

// From which pixels each new one is made, and how much of each it has.
struct Weights {
  struct Span {
    int64_t first, count;
    size_t start;  // in `values`
  };
  std::vector<Span> spans;
  std::vector<int32_t> values;
};

// For `count` of the new pixels, from `start` on.
Weights weights_of(int64_t size, float from, float to, int64_t new_size, const Filter& filter,
                   int64_t start, int64_t count) {
  const double scale = static_cast<double>(to - from) / static_cast<double>(new_size);
  const double shrink = std::max(scale, 1.0), reach = filter.reach * shrink;
  Weights made;
  std::vector<double> shares;
  for (int64_t i = start; i < start + count; ++i) {
    const double center = from + (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(center - reach + 0.5));
    const auto end = std::min(size, static_cast<int64_t>(center + reach + 0.5));
    shares.clear();
    double sum = 0;
    for (int64_t x = first; x < end; ++x) {
      shares.push_back(filter.weight((static_cast<double>(x) - center + 0.5) * (1.0 / shrink)));
      sum += shares.back();
    }
    made.spans.push_back({first, static_cast<int64_t>(shares.size()), made.values.size()});
    for (const double share : shares) {
      const double value = (sum != 0 ? share / sum : share) * (1 << kBits);
      made.values.push_back(static_cast<int32_t>(value < 0 ? value - 0.5 : value + 0.5));
    }
  }
  return made;
}

// A pixel as a sum of pixels that are `stride` bytes apart.
void add_up(const Weights& weights, const Weights::Span& span, const uint8_t* from, size_t stride,
            uint8_t* to) {
  const int32_t* weight = weights.values.data() + span.start;
  int32_t sums[3] = {1 << (kBits - 1), 1 << (kBits - 1), 1 << (kBits - 1)};
  for (int64_t i = 0; i < span.count; ++i, from += stride) {
    for (int c = 0; c < 3; ++c) sums[c] += from[c] * weight[i];
  }
  for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(std::clamp(sums[c] >> kBits, 0, 255));
}

Image nearest(const Image& image, int64_t width, int64_t height, const std::array<float, 4>& box,
              const Area& part) {
  Image made(part.width, part.height);
  const double across = static_cast<double>(box[2] - box[0]) / static_cast<double>(width);
  const double down = static_cast<double>(box[3] - box[1]) / static_cast<double>(height);
  // Added up from the first pixel on, since rounding decides at the edges.
  double from_y = box[1] + down * 0.5, left = box[0] + across * 0.5;
  for (int64_t y = 0; y < part.top; ++y) from_y += down;
  for (int64_t x = 0; x < part.left; ++x) left += across;
  for (int64_t y = 0; y < part.height; ++y, from_y += down) {
    double from_x = left;
    for (int64_t x = 0; x < part.width; ++x, from_x += across) {
      const auto column = static_cast<int64_t>(from_x), row = static_cast<int64_t>(from_y);
      if (column < image.width && row < image.height)
        std::memcpy(made.pixel(x, y), image.pixel(column, row), 3);
    }
  }
  return made;
}

Image in_two_passes(const Image& image, int64_t width, int64_t height, Interpolation interpolation,
                    const std::array<float, 4>& box, const Area& part) {
  if (interpolation == Interpolation::nearest) return nearest(image, width, height, box, part);
  const Filter filter = filter_of(interpolation);
  const Weights across =
      weights_of(image.width, box[0], box[2], width, filter, part.left, part.width);
  const Weights down =
      weights_of(image.height, box[1], box[3], height, filter, part.top, part.height);
  const auto needed = [](const Weights& weights) {
    const Weights::Span& last = weights.spans.back();
    const int64_t first = weights.spans.front().first;
    return std::pair{first, last.first + last.count - first};
  };
  Image made(part.width, part.height);
  // Pillow's rule (13): columns first where a picture becomes lower by more than twice as many
  // pixels as narrower. Of what is made first, only what is needed then.
  const int64_t lower = image.height - height, narrower = image.width - width;
  if (lower > 0 && lower > 2 * narrower) {
    const auto [first, count] = needed(across);
    Image columns(count, part.height);
    for (int64_t y = 0; y < part.height; ++y) {
      const Weights::Span& span = down.spans[static_cast<size_t>(y)];
      for (int64_t x = 0; x < count; ++x) {
        add_up(down, span, image.pixel(first + x, span.first), static_cast<size_t>(image.width) * 3,
               columns.pixel(x, y));
      }
      for (int64_t x = 0; x < part.width; ++x) {
        const Weights::Span& beside = across.spans[static_cast<size_t>(x)];
        add_up(across, beside, columns.pixel(beside.first - first, y), 3, made.pixel(x, y));
      }
    }
    return made;
  }
  const auto [first, count] = needed(down);
  Image rows(part.width, count);
  for (int64_t y = 0; y < rows.height; ++y) {
    for (int64_t x = 0; x < part.width; ++x) {
      const Weights::Span& span = across.spans[static_cast<size_t>(x)];
      add_up(across, span, image.pixel(span.first, first + y), 3, rows.pixel(x, y));
    }
  }
  for (int64_t y = 0; y < part.height; ++y) {
    const Weights::Span& span = down.spans[static_cast<size_t>(y)];
    for (int64_t x = 0; x < part.width; ++x) {
      add_up(down, span, rows.pixel(x, span.first - first), static_cast<size_t>(part.width) * 3,
             made.pixel(x, y));
    }
  }
  return made;
}

}  // namespace

std::optional<Interpolation> interpolation_named(const std::string& name) {
  static constexpr std::pair<const char*, Interpolation> kNames[] = {
      {"nearest", Interpolation::nearest},
      {"bilinear", Interpolation::bilinear},
      {"bicubic", Interpolation::bicubic},
      {"lanczos", Interpolation::lanczos}};
  for (const auto& [known, interpolation] : kNames) {
    if (name == known) return interpolation;
  }
  return std::nullopt;
}

namespace {

Image resize_part(const Image& image, int64_t width, int64_t height, Interpolation interpolation,
                  const std::array<float, 4>& box, const Area& part) {
  // A very high picture becomes lower first: Pillow's rule, which saves much of the other pass.
  if (image.height > image.width * 100 && height < image.height) {
    const Image low = in_two_passes(image, image.width, height, interpolation,
                                    {0, box[1], static_cast<float>(image.width), box[3]},
                                    {0, 0, image.width, height});
    return in_two_passes(low, width, height, interpolation,
                         {box[0], 0, box[2], static_cast<float>(height)}, part);
  }
  return in_two_passes(image, width, height, interpolation, box, part);
}

std::array<float, 4> all_of(const Image& image) {
  return {0, 0, static_cast<float>(image.width), static_cast<float>(image.height)};
}

}  // namespace

Image resize(const Image& image, int64_t width, int64_t height, Interpolation interpolation,
             const std::array<float, 4>& box) {
  return resize_part(image, width, height, interpolation, box, {0, 0, width, height});
}

Image resize(const Image& image, int64_t width, int64_t height, Interpolation interpolation) {
  return resize(image, width, height, interpolation, all_of(image));
}

Image resize_part(const Image& image, int64_t width, int64_t height, Interpolation interpolation,
                  const Area& part) {
  return resize_part(image, width, height, interpolation, all_of(image), part);
}

}  // namespace satchel::vision
