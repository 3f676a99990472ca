// Coefficients to samples, and samples to pixels, in the whole numbers of the reference decoder
// (libjpeg's "slow" transform and its triangle filters), so that every bit is the same.
#include <algorithm>

#include "jpeg.h"

namespace satchel::vision::jpeg {

namespace {

uint8_t clamped(int64_t value) { return static_cast<uint8_t>(std::clamp<int64_t>(value, 0, 255)); }

// The inverse cosine transform of 8 numbers by Loeffler, Ligtenberg and Moschytz: 12 products with
// constants of 13 bits. `shift` bits are rounded off.
template <int shift, typename In, typename Give>
void transform_8(const In& in, const Give& give) {
  // Even coefficients: a rotation by 3/8 pi, and sums.
  const int64_t turn = (in(2) + in(6)) * 4433;
  const int64_t e2 = turn - in(6) * 15137, e3 = turn + in(2) * 6270;
  const int64_t sum = (in(0) + in(4)) * 8192, difference = (in(0) - in(4)) * 8192;
  const int64_t even[] = {sum + e3, difference + e2, difference - e2, sum - e3};
  // Odd ones: four rotations that share a product.
  const int64_t shared = (in(7) + in(3) + in(5) + in(1)) * 9633;
  const int64_t a = (in(7) + in(1)) * -7373, b = (in(5) + in(3)) * -20995;
  const int64_t c = (in(7) + in(3)) * -16069 + shared, d = (in(5) + in(1)) * -3196 + shared;
  const int64_t odd[] = {in(1) * 12299 + a + d, in(3) * 25172 + b + c, in(5) * 16819 + b + d,
                         in(7) * 2446 + a + c};
  constexpr int64_t half = int64_t{1} << (shift - 1);
  for (int i = 0; i < 4; ++i) {
    give(i, (even[i] + odd[i] + half) >> shift);
    give(7 - i, (even[i] - odd[i] + half) >> shift);
  }
}

// How a component's samples are made as many as there are pixels.
class Upsampler {
 public:
  Upsampler(const Frame& frame, const Component& component)
      : component_(component),
        across_(frame.most_across / component.across),
        down_(frame.most_down / component.down) {
    if (frame.most_across % component.across != 0 || frame.most_down % component.down != 0)
      throw ImageError("its components have sizes of no whole ratio");
    const bool wide = component.width > 2;
    filters_across_ = across_ == 2 && down_ <= 2 && wide;
    filters_down_ = down_ == 2 && (across_ == 1 || filters_across_);
    row_.resize(static_cast<size_t>(component.width * across_));
    sums_.resize(static_cast<size_t>(component.width));
  }

  const uint8_t* row(int64_t y) {
    const int64_t near = std::min(y / down_, component_.height - 1);
    const uint8_t* samples = component_.row(near);
    if (!filters_down_) {
      if (across_ == 1) return samples;
      filters_across_ ? spread(samples) : repeat(samples);
      return row_.data();
    }
    // Three quarters of the nearer row and one of the other; outside is as the last one.
    const int64_t step = y % 2 == 0 ? -1 : 1;
    const uint8_t* other =
        component_.row(std::clamp<int64_t>(near + step, 0, component_.height - 1));
    for (size_t x = 0; x < sums_.size(); ++x) sums_[x] = samples[x] * 3 + other[x];
    if (filters_across_) {
      spread_sums();
    } else {
      const int rounding = step < 0 ? 1 : 2;
      for (size_t x = 0; x < sums_.size(); ++x)
        row_[x] = static_cast<uint8_t>((sums_[x] + rounding) >> 2);
    }
    return row_.data();
  }

 private:
  void repeat(const uint8_t* samples) {
    for (size_t x = 0; x < row_.size(); ++x) row_[x] = samples[x / static_cast<size_t>(across_)];
  }
  void spread(const uint8_t* in) {
    const size_t last = sums_.size() - 1;
    for (size_t x = 0; x <= last; ++x) {
      const int value = in[x] * 3;
      row_[2 * x] = x == 0 ? in[x] : static_cast<uint8_t>((value + in[x - 1] + 1) >> 2);
      row_[2 * x + 1] = x == last ? in[x] : static_cast<uint8_t>((value + in[x + 1] + 2) >> 2);
    }
  }
  void spread_sums() {
    const size_t last = sums_.size() - 1;
    for (size_t x = 0; x <= last; ++x) {
      const int value = sums_[x] * 3;
      const int before = x == 0 ? sums_[x] : sums_[x - 1];
      const int behind = x == last ? sums_[x] : sums_[x + 1];
      row_[2 * x] = static_cast<uint8_t>((value + before + 8) >> 4);
      row_[2 * x + 1] = static_cast<uint8_t>((value + behind + 7) >> 4);
    }
  }

  const Component& component_;
  int across_, down_;
  bool filters_across_, filters_down_;
  std::vector<uint8_t> row_;
  std::vector<int> sums_;
};

// Luminance and two differences as red, green and blue, with constants of 16 bits.
void from_luminance(int y, int blue, int red, uint8_t* to) {
  constexpr int64_t half = 1 << 15;
  const int64_t cb = blue - 128, cr = red - 128;
  to[0] = clamped(y + ((91881 * cr + half) >> 16));
  to[1] = clamped(y + ((-22554 * cb - 46802 * cr + half) >> 16));
  to[2] = clamped(y + ((116130 * cb + half) >> 16));
}

bool has_luminance(const Frame& frame) {
  const auto& parts = frame.components;
  if (parts.size() == 4) return frame.adobe_transform > 0;
  if (frame.has_jfif) return true;
  if (frame.adobe_transform >= 0) return frame.adobe_transform != 0;
  return !(parts[0].id == 'R' && parts[1].id == 'G' && parts[2].id == 'B');
}

// Inks, which files have the other way round: 255 is none.
void from_inks(const uint8_t* inks, uint8_t black, uint8_t* to) {
  for (size_t c = 0; c < 3; ++c) {
    const int product = (255 - inks[c]) * black + 128;
    to[c] = clamped(black - (((product >> 8) + product) >> 8));
  }
}

}  // namespace

void transform(const Block& block, const Quantization& steps, uint8_t* to, int64_t stride) {
  std::array<int64_t, 64> columns;
  for (size_t x = 0; x < 8; ++x) {
    const auto in = [&](size_t y) -> int64_t {
      return static_cast<int16_t>(block[y * 8 + x] * steps[y * 8 + x]);
    };
    transform_8<11>(in,
                    [&](int y, int64_t value) { columns[static_cast<size_t>(y) * 8 + x] = value; });
  }
  for (size_t y = 0; y < 8; ++y, to += stride) {
    const auto in = [&](size_t x) { return columns[y * 8 + x]; };
    transform_8<18>(in, [&](int x, int64_t value) { to[x] = clamped(value + 128); });
  }
}

Image colours(const Frame& frame) {
  std::vector<Upsampler> parts;
  for (const Component& component : frame.components) parts.emplace_back(frame, component);
  const bool luminance = parts.size() > 1 && has_luminance(frame);
  Image image(frame.width, frame.height);
  std::array<const uint8_t*, 4> rows{};
  for (int64_t y = 0; y < frame.height; ++y) {
    for (size_t c = 0; c < parts.size(); ++c) rows[c] = parts[c].row(y);
    for (int64_t x = 0; x < frame.width; ++x) {
      uint8_t* to = image.pixel(x, y);
      if (parts.size() == 1) {
        std::fill_n(to, 3, rows[0][x]);
        continue;
      }
      if (luminance) {
        from_luminance(rows[0][x], rows[1][x], rows[2][x], to);
      } else {
        for (size_t c = 0; c < 3; ++c) to[c] = rows[c][x];
      }
      if (parts.size() == 3) continue;
      // With a luminance, it is the paper's colours that were written, not the inks.
      std::array<uint8_t, 3> inks{};
      for (size_t c = 0; c < 3; ++c)
        inks[c] = luminance ? static_cast<uint8_t>(255 - to[c]) : to[c];
      from_inks(inks.data(), rows[3][x], to);
    }
  }
  return image;
}

}  // namespace satchel::vision::jpeg
