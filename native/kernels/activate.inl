// Activation functions, for any lane width. Included after elementwise.inl.

namespace satchel {
namespace {

inline F sigmoid_of(F x) {
  const F one = broadcast(1.0f);
  return one / (one + exponential(-x));
}

inline F hardsigmoid_of(F x) {
  const F shifted = larger(broadcast(0.0f), x + broadcast(3.0f));
  return smaller(broadcast(6.0f), shifted) * broadcast(1.0f / 6);
}

// erf to 2e-7 (Abramowitz and Stegun 7.1.26), which times x / 2 is what gelu adds to x / 2.
inline F gelu_of(F x) {
  const F one = broadcast(1.0f), scaled = x * broadcast(0.70710678118654752f);
  const F magnitude = from_bits(to_bits(scaled) & 0x7fffffffu);
  const F t = one / fma(magnitude, broadcast(0.3275911f), one);
  F p = broadcast(1.061405429f);
  p = fma(p, t, broadcast(-1.453152027f));
  p = fma(p, t, broadcast(1.421413741f));
  p = fma(p, t, broadcast(-0.284496736f));
  p = fma(p, t, broadcast(0.254829592f));
  const F erf = one - p * t * exponential(-(magnitude * magnitude));
  const F half = x * broadcast(0.5f);
  const F signed_erf = from_bits(to_bits(erf) | (to_bits(x) & 0x80000000u));
  return fma(half, signed_erf, half);
}

inline F gelu_tanh_of(F x) {
  const F one = broadcast(1.0f);
  const F inner = fma(x * x, broadcast(0.044715f), one) * x;
  return x / (one + exponential(inner * broadcast(-1.5957691216057308f)));
}

// larger() and smaller() return their second argument when one is NaN, so NaN comes through.
inline F activated(Activation activation, F x) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::relu: return larger(broadcast(0.0f), x);
    case Activation::relu6: return smaller(broadcast(6.0f), larger(broadcast(0.0f), x));
    case Activation::hardswish: return x * hardsigmoid_of(x);
    case Activation::hardsigmoid: return hardsigmoid_of(x);
    case Activation::silu: return x * sigmoid_of(x);
    case Activation::gelu: return gelu_of(x);
    case Activation::gelu_tanh: return gelu_tanh_of(x);
    case Activation::sigmoid: return sigmoid_of(x);
    case Activation::tanh: return hyperbolic_tangent(x);
  }
  return x;
}

void activate(Activation activation, const float* x, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, activated(activation, load(x + i)));
  if (i < n) store_n(out + i, activated(activation, load_n(x + i, n - i)), n - i);
}

}  // namespace
}  // namespace satchel
