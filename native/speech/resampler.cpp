#include "resampler.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace satchel::speech {

namespace {

constexpr double kZeroCrossings = 24;  // of the filter, on each side
constexpr double kBeta = 9;            // of Kaiser's window

// The modified Bessel function of order 0.
double bessel(double x) {
  double sum = 1, term = 1;
  for (int k = 1; term > 1e-17 * sum; ++k) {
    term *= (x / (2 * k)) * (x / (2 * k));
    sum += term;
  }
  return sum;
}

double sinc(double x) {
  return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x);
}

}  // namespace

Resampler::Resampler(int64_t rate) {
  const int64_t common = std::gcd(rate, kRate);
  up_ = kRate / common, down_ = rate / common;
  if (up_ == down_) return;
  // A sinc under Kaiser's window, below both rates' highest frequency.
  const double cutoff = std::min(1.0, static_cast<double>(up_) / static_cast<double>(down_)) * 0.97;
  half_ = static_cast<int64_t>(std::ceil(kZeroCrossings / cutoff));
  const double most = bessel(kBeta);
  for (int64_t phase = 0; phase < up_; ++phase) {
    std::vector<double> taps;
    for (int64_t tap = 1 - half_; tap <= half_; ++tap) {
      const double away =
          static_cast<double>(tap) - static_cast<double>(phase) / static_cast<double>(up_);
      const double inside = std::clamp(away / static_cast<double>(half_), -1.0, 1.0);
      const double window = bessel(kBeta * std::sqrt(1 - inside * inside)) / most;
      taps.push_back(sinc(cutoff * away) * cutoff * window);
    }
    const double sum = std::accumulate(taps.begin(), taps.end(), 0.0);
    for (const double tap : taps) filters_.push_back(static_cast<float>(tap / sum));
  }
  waiting_.resize(static_cast<size_t>(half_ - 1));
}

std::vector<float> Resampler::push(const std::vector<float>& block) {
  if (up_ == down_) return block;
  waiting_.insert(waiting_.end(), block.begin(), block.end());
  // Samples with all their neighbours.
  const int64_t ready = static_cast<int64_t>(waiting_.size()) - 2 * half_ + 1;
  std::vector<float> out;
  if (ready <= 0) return out;
  int64_t place = skip_;
  for (; place / up_ < ready; place += down_) {
    const float* sound = &waiting_[static_cast<size_t>(place / up_)];
    const float* filter = &filters_[static_cast<size_t>(place % up_ * 2 * half_)];
    out.push_back(std::inner_product(sound, sound + 2 * half_, filter, 0.0f));
  }
  const int64_t used = std::min(place / up_, ready);
  waiting_.erase(waiting_.begin(), waiting_.begin() + used);
  skip_ = place - used * up_;
  return out;
}

std::vector<float> Resampler::finish() {
  if (up_ == down_) return {};
  return push(std::vector<float>(static_cast<size_t>(half_)));
}

}  // namespace satchel::speech
