// Value-by-value functions, norms and rotary embedding, for any lane width.
// Included inside a lanes_*.h translation unit.

#include <cmath>

namespace satchel {
namespace {

inline F load_part(const float* p, int64_t n) { return n >= kLanes ? load(p) : load_n(p, n); }

// exp(x) of N vectors, in place, to about 1e-7 relative; 0 below -87.3, where floats become
// subnormal. Step by step for all of them: each step of one waits for the step before.
template <int N>
inline void exponentials(F* x) {
  constexpr float kLowest = -87.33f, kHighest = 88.37f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLogarithm = 1.44269504088896341f;
  constexpr float kCoefficients[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                     1.0f / 6,    0.5f,       1.0f,       1.0f};
  F shifted[N], r[N], p[N];
  SATCHEL_UNROLL
  for (int i = 0; i < N; ++i) r[i] = smaller(broadcast(kHighest), larger(broadcast(kLowest), x[i]));
  SATCHEL_UNROLL
  for (int i = 0; i < N; ++i) shifted[i] = fma(r[i], broadcast(kLogarithm), broadcast(kRound));
  // ln 2 in two parts, so that n * ln 2 is taken off without rounding error.
  SATCHEL_UNROLL
  for (int i = 0; i < N; ++i) {
    const F n = shifted[i] - broadcast(kRound);
    r[i] = fma(n, broadcast(2.12194440e-4f), fma(n, broadcast(-0.693359375f), r[i]));
    p[i] = broadcast(kCoefficients[0]);
  }
  SATCHEL_UNROLL
  for (int c = 1; c < 8; ++c) {
    SATCHEL_UNROLL
    for (int i = 0; i < N; ++i) p[i] = fma(p[i], r[i], broadcast(kCoefficients[c]));
  }
  SATCHEL_UNROLL
  for (int i = 0; i < N; ++i) {
    const F power = from_bits((to_bits(shifted[i]) << 23) + (127u << 23));
    x[i] = zero_where_below(x[i], kLowest, p[i] * power);
  }
}

inline F exponential(F x) {
  exponentials<1>(&x);
  return x;
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

// The means of some rows, and what their distances from it are to be multiplied with.
struct Norms {
  static constexpr int kRows = 16;
  float mean[kRows], factor[kRows];

  // R rows at a time, so that one row's sums need not wait for another's. A row has the same bits
  // in any block.
  template <int R>
  void add(const float* x, int64_t cols, float eps, int64_t first) {
    const float count = static_cast<float>(cols);
    float sums[4];
    totals<R>(x, cols, [](F v, int) { return v; }, sums);
    F centre[R];
    for (int r = 0; r < R; ++r) {
      mean[first + r] = sums[r] / count;
      centre[r] = broadcast(mean[first + r]);
    }
    totals<R>(x, cols, [&](F v, int r) { return (v - centre[r]) * (v - centre[r]); }, sums);
    for (int r = 0; r < R; ++r) factor[first + r] = 1.0f / sqrtf(sums[r] / count + eps);
  }

 private:
  template <int R, class Function>
  static void totals(const float* x, int64_t cols, Function f, float* out) {
    F total[R];
    SATCHEL_UNROLL
    for (int r = 0; r < R; ++r) total[r] = broadcast(0.0f);
    int64_t i = 0;
    for (; i + kLanes <= cols; i += kLanes) {
      SATCHEL_UNROLL
      for (int r = 0; r < R; ++r) total[r] = total[r] + f(load(x + r * cols + i), r);
    }
    for (int r = 0; r < R && i < cols; ++r) {
      float rest[kLanes];  // what is past the end does not count
      store(rest, f(load_n(x + r * cols + i, cols - i), r));
      total[r] = total[r] + load_n(rest, cols - i);
    }
    sums4(total[0], total[R > 1 ? 1 : 0], total[R > 2 ? 2 : 0], total[R > 3 ? 3 : 0], out);
  }
};

// Calls put(place of a row, part), where part(i, n) are the results of columns [i, i + n): first
// the norms of some rows, then these rows, while they are in the first-level cache.
template <class Put>
inline void normalize(const float* x, const float* weight, const float* bias, float eps,
                      int64_t rows, int64_t cols, Put put) {
  constexpr int64_t kNear = 4096;  // numbers
  const int64_t fitting = kNear / cols < 4              ? 4
                          : kNear / cols < Norms::kRows ? kNear / cols
                                                        : Norms::kRows;
  Norms norms;
  for (int64_t first = 0; first < rows; first += fitting) {
    const int64_t some = rows - first < fitting ? rows - first : fitting;
    int64_t r = 0;
    for (; r + 4 <= some; r += 4) norms.add<4>(x + (first + r) * cols, cols, eps, r);
    for (; r < some; ++r) norms.add<1>(x + (first + r) * cols, cols, eps, r);
    for (r = 0; r < some; ++r) {
      const float* row = x + (first + r) * cols;
      const F centre = broadcast(norms.mean[r]), factor = broadcast(norms.factor[r]);
      put((first + r) * cols, [=](int64_t i, int64_t n) {
        const F v = (load_part(row + i, n) - centre) * factor * load_part(weight + i, n);
        return v + (bias ? load_part(bias + i, n) : broadcast(0.0f));
      });
    }
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t rows,
                int64_t cols, float* out) {
  normalize(x, weight, bias, eps, rows, cols, [=](int64_t place, auto part) {
    int64_t i = 0;
    for (; i + kLanes <= cols; i += kLanes) store(out + place + i, part(i, kLanes));
    if (i < cols) store_n(out + place + i, part(i, cols - i), cols - i);
  });
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
