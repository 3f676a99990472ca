// Scales of 4-bit groups that are whole multiples of a step, for pack.cpp; what is chosen is told
// in pack.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "half.h"
#include "kernels.h"

namespace satchel {
namespace {

typedef float Floats __attribute__((vector_size(16)));
typedef double Doubles __attribute__((vector_size(32)));
typedef uint32_t Bits __attribute__((vector_size(16)));
typedef uint8_t Bytes __attribute__((vector_size(4)));

constexpr int64_t kWidth = 4;          // every group is a multiple of it
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer

Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

Floats splat(float x) { return Floats{x, x, x, x}; }

bool is_finite(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return (bits & 0x7f800000u) != 0x7f800000u;
}

// The value of largest magnitude, with its sign; of equals the first. NaN if any is not finite.
float extreme(const float* w, int64_t n) {
  Floats high = splat(w[0]), low = high;
  Bits bad = {};
  for (int64_t i = 0; i < n; i += kWidth) {
    const Floats v = load(w + i);
    high = v > high ? v : high;
    low = v < low ? v : low;
    bad |= (Bits)(((Bits)v & 0x7f800000u) == 0x7f800000u);
  }
  if (bad[0] | bad[1] | bad[2] | bad[3]) return __builtin_nanf("");
  const float top = std::max(std::max(high[0], high[1]), std::max(high[2], high[3]));
  const float bottom = std::min(std::min(low[0], low[1]), std::min(low[2], low[3]));
  if (top > -bottom) return top;
  if (top < -bottom) return bottom;
  for (int64_t i = 0; i < n; ++i) {
    if (w[i] == top || w[i] == bottom) return w[i];
  }
  return 0.0f;
}

Doubles squared_difference(Floats a, Floats b) {
  const Doubles off = __builtin_convertvector(a, Doubles) - __builtin_convertvector(b, Doubles);
  return off * off;
}

// To the nearest whole number within limits.
Floats rounded(Floats x, float lowest, float highest) {
  x = x < splat(lowest) ? splat(lowest) : x;
  x = x > splat(highest) ? splat(highest) : x;
  return (x + splat(kRound)) - splat(kRound);
}

// What q4's codes with this scale lose: the sum of the errors' fourth powers, in f64. With squares,
// more of a group's largest weights are clipped, and answers get worse.
double loss(const float* w, int64_t n, float scale) {
  Doubles error = {};
  const Floats divisor = splat(scale == 0.0f ? __builtin_inff() : scale);
  for (int64_t i = 0; i < n; i += kWidth) {
    const Floats values = load(w + i);
    const Floats q = rounded(values / divisor, -8.0f, 7.0f);
    const Doubles square = squared_difference(values, q * splat(scale));
    error += square * square;
  }
  return (error[0] + error[1]) + (error[2] + error[3]);
}

// To seven significant bits: up to 16 times this is exact in fp16.
float seven_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0xffff + (bits >> 17 & 1)) & ~0x1ffffu;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// The step of finer multiples: a number of four bits, of which 127 are at least `largest`.
float fine_step(float largest) {
  float x = __builtin_fabsf(largest) / 127.0f;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0xfffff) & ~0xfffffu;
  std::memcpy(&x, &bits, sizeof x);
  return std::max(__builtin_ceilf(x * 0x1p24f), 1.0f) * 0x1p-24f;
}

// q4 and q4_steps: the scales of a run of groups of one row.
struct RunScales {
  static constexpr int64_t kMostGroups = kRunColumns / 8;
  float scales[kMostGroups];
  float step = 0.0f, multiples[kMostGroups] = {};  // of q4_steps, unless a scale is not finite

  RunScales(const float* w, int64_t groups, int64_t group, bool always_steps) {
    float needed[kMostGroups], largest = 0.0f;
    bool finite = true;
    for (int64_t g = 0; g < groups; ++g) {
      needed[g] = extreme(w + g * group, group) / -8.0f;
      scales[g] = half_bits_to_float(float_to_half_bits(needed[g]));
      finite = finite && is_finite(scales[g]);
      if (__builtin_fabsf(needed[g]) > __builtin_fabsf(largest)) largest = needed[g];
    }
    if (!finite) return;
    if (!choose_multiples(w, groups, group, needed, largest)) {
      if (!always_steps) return;
      choose_fine_multiples(w, groups, group, needed, largest);
    }
    for (int64_t g = 0; g < groups; ++g) scales[g] = multiples[g] * step;
  }

 private:
  static constexpr float kSmallestStep = 0x1p-18f, kLargestHalf = 65504.0f;
  static constexpr double kWorstLossRatio = 2.0;
  static constexpr float kFewestSteps = 1.0f;

  // -15 to 16 times the step; false where that is too coarse or not exact.
  bool choose_multiples(const float* w, int64_t groups, int64_t group, const float* needed,
                        float largest) {
    step = seven_bits(largest / 16.0f);
    const float size = __builtin_fabsf(step);
    if (size < kSmallestStep || size * 16.0f > kLargestHalf) return false;
    for (int64_t g = 0; g < groups; ++g) {
      if (needed[g] != 0.0f && __builtin_fabsf(needed[g]) < kFewestSteps * size) return false;
    }
    double total = 0.0, own_total = 0.0;
    for (int64_t g = 0; g < groups; ++g) {
      const float* part = w + g * group;
      if (needed[g] == largest) {
        multiples[g] = 16.0f;
        total += loss(part, group, 16.0f * step);
      } else {
        multiples[g] = best_multiple(part, group, needed[g], -15.0f, 16.0f, &total);
      }
      own_total += loss(part, group, scales[g]);
    }
    return total <= kWorstLossRatio * own_total;
  }

  void choose_fine_multiples(const float* w, int64_t groups, int64_t group, const float* needed,
                             float largest) {
    step = fine_step(largest);
    const float most = std::min(127.0f, __builtin_floorf(kLargestHalf / step));
    double total = 0.0;
    for (int64_t g = 0; g < groups; ++g) {
      multiples[g] = best_multiple(w + g * group, group, needed[g], -most, most, &total);
    }
  }

  float best_multiple(const float* w, int64_t n, float needed, float lowest, float highest,
                      double* total) const {
    if (needed == 0.0f) return 0.0f;
    const float ratio = needed / step;
    double least = __builtin_inf();
    float best = 0.0f;
    // The largest weight becomes -8 with the one sign, and 7 with the other.
    for (const float exact : {ratio, ratio * (-8.0f / 7.0f)}) {
      const float sign = exact < 0.0f ? -1.0f : 1.0f, most = exact < 0.0f ? -lowest : highest;
      const float whole = __builtin_ceilf(__builtin_fabsf(exact));
      for (float off = 0.0f; off < 3.0f; ++off) {
        const float tried = sign * std::min(std::max(whole - off, 1.0f), most);
        const double tried_loss = loss(w, n, tried * step);
        if (tried_loss < least) least = tried_loss, best = tried;
      }
    }
    *total += least;
    return best;
  }
};

}  // namespace
}  // namespace satchel
