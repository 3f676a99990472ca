#include "log_mel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace satchel {

namespace {

// Frames are transformed side by side, so that every operation is one on whole vectors. Two real
// frames are the real and the imaginary part of a complex one.
constexpr int64_t kLanes = 8, kFrames = 2 * kLanes;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

struct Complex {
  Vector re, im;
};

inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
inline Complex operator*(Complex a, float s) { return {a.re * s, a.im * s}; }
// a * -i
inline Complex turned(Complex a) { return {a.im, -a.re}; }
inline Complex rotated(Complex a, float cos, float sin) {
  return {a.re * cos - a.im * sin, a.re * sin + a.im * cos};
}

// exp(-2 pi i n / 400)
struct Roots {
  float cos[kFrameSamples], sin[kFrameSamples], window[kFrameSamples];
  Roots() {
    for (int64_t n = 0; n < kFrameSamples; ++n) {
      const double angle = -2 * std::numbers::pi * static_cast<double>(n) / kFrameSamples;
      cos[n] = static_cast<float>(std::cos(angle));
      sin[n] = static_cast<float>(std::sin(angle));
      window[n] = static_cast<float>(0.5 - 0.5 * std::cos(angle));
    }
  }
};

const Roots& roots() {
  static const Roots kRoots;
  return kRoots;
}

void butterfly(Complex (&x)[4]) {
  const Complex a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = turned(x[1] - x[3]);
  x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
}

void butterfly(Complex (&x)[5]) {
  constexpr float c1 = 0.30901699437494745f, c2 = -0.80901699437494745f, s1 = 0.9510565162951535f,
                  s2 = 0.5877852522924731f;
  const Complex a = x[1] + x[4], b = x[2] + x[3];
  const Complex c = turned(x[1] - x[4]), d = turned(x[2] - x[3]);
  const Complex p = x[0] + a * c1 + b * c2, q = x[0] + a * c2 + b * c1;
  const Complex r = c * s1 + d * s2, s = c * s2 - d * s1;
  x[0] = x[0] + a + b;
  x[1] = p + r, x[4] = p - r, x[2] = q + s, x[3] = q - s;
}

// One pass of Stockham's transform: transforms of `done` numbers become ones Radix times as long,
// and no order has to be put right afterwards.
template <int Radix>
void pass(const Complex* from, Complex* to, int64_t done) {
  const int64_t rest = kFrameSamples / (done * Radix);
  const Roots& root = roots();
  for (int64_t group = 0; group < done; ++group) {
    for (int64_t i = 0; i < rest; ++i) {
      Complex x[Radix];
      for (int64_t r = 0; r < Radix; ++r) {
        x[r] = from[(group * Radix + r) * rest + i];
        if (group > 0 && r > 0) {
          const int64_t n = group * r * rest;
          x[r] = rotated(x[r], root.cos[n], root.sin[n]);
        }
      }
      butterfly(x);
      for (int64_t r = 0; r < Radix; ++r) to[(group + r * done) * rest + i] = x[r];
    }
  }
}

// The power of kFrames frames: the first kLanes are the real parts of x, the others the imaginary.
void powers(const Complex* x, float* out) {
  for (int64_t k = 0; k < kFrequencies; ++k) {
    const Complex a = x[k], b = x[(kFrameSamples - k) % kFrameSamples];
    const Vector even = a.re + b.re, odd = a.im - b.im, re = a.im + b.im, im = b.re - a.re;
    const Vector first = (even * even + odd * odd) * 0.25f, second = (re * re + im * im) * 0.25f;
    std::memcpy(out + k * kFrames, &first, sizeof first);
    std::memcpy(out + k * kFrames + kLanes, &second, sizeof second);
  }
}

}  // namespace

MelFilters::MelFilters(const float* filters, int64_t mels) {
  for (int64_t mel = 0; mel < mels; ++mel, filters += kFrequencies) {
    const float* end = filters + kFrequencies;
    const float* first = std::find_if(filters, end, [](float w) { return w != 0; });
    while (end > first && end[-1] == 0) --end;
    filters_.push_back({first - filters, {first, end}});
  }
}

void MelFilters::apply(int64_t mel, const float* power, int64_t lanes, float* out) const {
  const Filter& filter = filters_[static_cast<size_t>(mel)];
  std::fill_n(out, lanes, 0.0f);
  power += filter.first * lanes;
  for (const float weight : filter.weights) {
    for (int64_t lane = 0; lane < lanes; ++lane) out[lane] += weight * power[lane];
    power += lanes;
  }
}

void log_mel(const float* samples, int64_t frames, const MelFilters& filters, float* out) {
  std::vector<Complex> a(kFrameSamples), b(kFrameSamples);
  std::vector<float> power(kFrequencies * kFrames);
  const Roots& root = roots();
  float sums[kFrames];
  for (int64_t first = 0; first < frames; first += kFrames) {
    const int64_t count = std::min(kFrames, frames - first);
    const float* heard = samples + first * kFrameStep;
    if (std::all_of(heard, heard + (count - 1) * kFrameStep + kFrameSamples,
                    [](float x) { return x == 0; })) {
      std::fill_n(out + first * filters.mels(), count * filters.mels(), -10.0f);
      continue;
    }
    for (int64_t n = 0; n < kFrameSamples; ++n) {
      float row[kFrames] = {};
      for (int64_t f = 0; f < count; ++f) {
        row[f] = heard[f * kFrameStep + n] * root.window[n];
      }
      std::memcpy(&a[static_cast<size_t>(n)].re, row, sizeof(Vector));
      std::memcpy(&a[static_cast<size_t>(n)].im, row + kLanes, sizeof(Vector));
    }
    pass<4>(a.data(), b.data(), 1);
    pass<4>(b.data(), a.data(), 4);
    pass<5>(a.data(), b.data(), 16);
    pass<5>(b.data(), a.data(), 80);
    powers(a.data(), power.data());
    for (int64_t mel = 0; mel < filters.mels(); ++mel) {
      filters.apply(mel, power.data(), kFrames, sums);
      for (int64_t f = 0; f < count; ++f) {
        out[(first + f) * filters.mels() + mel] = std::log10(std::max(sums[f], 1e-10f));
      }
    }
  }
}

}  // namespace satchel
