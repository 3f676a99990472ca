// Value-by-value functions, norms and rotary embedding, for any lane width.
// Included inside a lanes_*.h translation unit.

#include <cmath>

namespace satchel {
namespace {

// exp(x) to about 1e-7 relative; 0 below -87.3, where floats become subnormal.
inline F exponential(F x) {
  constexpr float kLowest = -87.33f, kHighest = 88.37f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const F clamped = smaller(broadcast(kHighest), larger(broadcast(kLowest), x));
  const F shifted = fma(clamped, broadcast(1.44269504088896341f), broadcast(kRound));
  const F n = shifted - broadcast(kRound);
  // ln 2 in two parts, so that n * ln 2 is taken off without rounding error.
  F r = fma(n, broadcast(-0.693359375f), clamped);
  r = fma(n, broadcast(2.12194440e-4f), r);
  F p = broadcast(1.0f / 5040);
  p = fma(p, r, broadcast(1.0f / 720));
  p = fma(p, r, broadcast(1.0f / 120));
  p = fma(p, r, broadcast(1.0f / 24));
  p = fma(p, r, broadcast(1.0f / 6));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  const F power = from_bits((to_bits(shifted) << 23) + (127u << 23));
  return zero_where_below(x, kLowest, p * power);
}

// tanh(x): a polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel.
inline F hyperbolic_tangent(F x) {
  const F magnitude = from_bits(to_bits(x) & 0x7fffffffu);
  const F square = x * x;
  F p = broadcast(2.2765472e-3f);
  p = fma(p, square, broadcast(-8.3298550e-3f));
  p = fma(p, square, broadcast(2.1764706e-2f));
  p = fma(p, square, broadcast(-5.3958758e-2f));
  p = fma(p, square, broadcast(1.3333302e-1f));
  p = fma(p, square, broadcast(-3.3333333e-1f));
  const F near_zero = fma(p * square, x, x);
  const F one = broadcast(1.0f);
  const F away = one - broadcast(2.0f) / (exponential(magnitude + magnitude) + one);
  const F signed_away = from_bits(to_bits(away) | (to_bits(x) & 0x80000000u));
  return where_below(magnitude, 0.625f, near_zero, signed_away);
}

template <class Function>
inline void for_each(const float* a, const float* b, int64_t n, float* out, Function f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, f(load(a + i), load(b + i)));
  if (i < n) store_n(out + i, f(load_n(a + i, n - i), load_n(b + i, n - i)), n - i);
}

void add(const float* a, const float* b, int64_t n, float* out) {
  for_each(a, b, n, out, [](F x, F y) { return x + y; });
}

void mul(const float* a, const float* b, int64_t n, float* out) {
  for_each(a, b, n, out, [](F x, F y) { return x * y; });
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for_each(gate, up, n, out, [](F x, F y) {
    const F one = broadcast(1.0f);
    return x / (one + exponential(-x)) * y;
  });
}

// 0.5 x (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3).
void gelu_tanh_mul(const float* gate, const float* up, int64_t n, float* out) {
  for_each(gate, up, n, out, [](F x, F y) {
    const F one = broadcast(1.0f);
    const F inner = fma(x * x, broadcast(0.044715f), one) * x;
    return x / (one + exponential(inner * broadcast(-1.5957691216057308f))) * y;
  });
}

void float_to_half(const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_half(out + i, load(x + i));
  if (i < n) store_half_n(out + i, load_n(x + i, n - i), n - i);
}

void half_to_float(const uint16_t* x, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load_half(x + i));
  if (i < n) store_n(out + i, load_half_n(x + i, n - i), n - i);
}

void rms_norm(const float* x, const float* weight, float eps, int64_t rows, int64_t cols,
              float* out) {
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    F even = broadcast(0.0f), odd = even;
    int64_t i = 0;
    for (; i + 2 * kLanes <= cols; i += 2 * kLanes) {
      const F a = load(x + i), b = load(x + i + kLanes);
      even = fma(a, a, even);
      odd = fma(b, b, odd);
    }
    for (; i < cols; i += kLanes) {
      const F a = i + kLanes <= cols ? load(x + i) : load_n(x + i, cols - i);
      even = fma(a, a, even);
    }
    const F factor = broadcast(1.0f / sqrtf(sum(even + odd) / static_cast<float>(cols) + eps));
    for_each(x, weight, cols, out, [factor](F v, F w) { return v * factor * w; });
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t rows,
                int64_t cols, float* out) {
  const float count = static_cast<float>(cols);
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    F total = broadcast(0.0f);
    int64_t i = 0;
    for (; i + kLanes <= cols; i += kLanes) total = total + load(x + i);
    if (i < cols) total = total + load_n(x + i, cols - i);
    const float mean = sum(total) / count;
    F spread = broadcast(0.0f);
    for (i = 0; i + kLanes <= cols; i += kLanes) {
      const F d = load(x + i) - broadcast(mean);
      spread = fma(d, d, spread);
    }
    float squares = sum(spread);
    for (; i < cols; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const F factor = broadcast(1.0f / sqrtf(squares / count + eps));
    const F centre = broadcast(mean);
    if (bias == nullptr) {
      for_each(x, weight, cols, out, [=](F v, F w) { return (v - centre) * factor * w; });
      continue;
    }
    for (i = 0; i + kLanes <= cols; i += kLanes) {
      store(out + i, (load(x + i) - centre) * factor * load(weight + i) + load(bias + i));
    }
    if (const int64_t n = cols - i; n > 0) {
      const F last = (load_n(x + i, n) - centre) * factor * load_n(weight + i, n);
      store_n(out + i, last + load_n(bias + i, n), n);
    }
  }
}

void rope(const float* x, const float* cos_sin, int64_t rows, int64_t heads, int64_t dim,
          int64_t rotary, float* out) {
  const int64_t half = rotary / 2;
  for (int64_t row = 0; row < rows; ++row, cos_sin += rotary) {
    for (int64_t head = 0; head < heads; ++head, x += dim, out += dim) {
      for (int64_t i = 0; i < half; i += kLanes) {
        const int64_t n = half - i;
        const auto part = [n](const float* p) { return n < kLanes ? load_n(p, n) : load(p); };
        const F a = part(x + i), b = part(x + half + i);
        const F cosine = part(cos_sin + i), sine = part(cos_sin + half + i);
        const F first = a * cosine - b * sine, second = b * cosine + a * sine;
        if (n < kLanes) {
          store_n(out + i, first, n);
          store_n(out + half + i, second, n);
        } else {
          store(out + i, first);
          store(out + half + i, second);
        }
      }
      if (out != x) std::memcpy(out + rotary, x + rotary, sizeof(float) * (dim - rotary));
    }
  }
}

}  // namespace
}  // namespace satchel
