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

// x times the share of a normal distribution that is below x, to 1e-6: 1/2 + x * p(x^2), where p is
// a polynomial fitted over |x| <= 5.5, beyond which the share is 0 or 1. The argument of p is
// brought to -1 .. 1, where its coefficients do not cancel.
inline F gelu_of(F x) {
  constexpr float kEnd = 5.5f;
  const F inside = smaller(broadcast(kEnd), larger(broadcast(-kEnd), x));
  const F t = fma(inside * inside, broadcast(2 / (kEnd * kEnd)), broadcast(-1.0f));
  F p = broadcast(-9.16464545e-4f);
  p = fma(p, t, broadcast(2.59829871e-3f));
  p = fma(p, t, broadcast(-2.50821118e-3f));
  p = fma(p, t, broadcast(2.46121222e-3f));
  p = fma(p, t, broadcast(-6.29990548e-3f));
  p = fma(p, t, broadcast(1.14374002e-2f));
  p = fma(p, t, broadcast(-1.53713943e-2f));
  p = fma(p, t, broadcast(2.00248826e-2f));
  p = fma(p, t, broadcast(-2.59419158e-2f));
  p = fma(p, t, broadcast(3.21143791e-2f));
  p = fma(p, t, broadcast(-3.88047360e-2f));
  p = fma(p, t, broadcast(4.77355607e-2f));
  p = fma(p, t, broadcast(-6.41719773e-2f));
  p = fma(p, t, broadcast(1.28551945e-1f));
  return zero_where_below(x, -kEnd, x * fma(inside, p, broadcast(0.5f)));
}

inline F gelu_tanh_of(F x) {
  const F one = broadcast(1.0f);
  const F inner = fma(x * x, broadcast(0.044715f), one) * x;
  return x / (one + exponential(inner * broadcast(-1.5957691216057308f)));
}

// larger() and smaller() return their second argument when one is NaN, so NaN comes through.
inline F activated(Activation activation, F x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return larger(broadcast(0.0f), x);
    case Activation::relu6:
      return smaller(broadcast(6.0f), larger(broadcast(0.0f), x));
    case Activation::hardswish:
      return x * hardsigmoid_of(x);
    case Activation::hardsigmoid:
      return hardsigmoid_of(x);
    case Activation::silu:
      return x * sigmoid_of(x);
    case Activation::gelu:
      return gelu_of(x);
    case Activation::gelu_tanh:
      return gelu_tanh_of(x);
    case Activation::sigmoid:
      return sigmoid_of(x);
    case Activation::tanh:
      return hyperbolic_tangent(x);
  }
  return x;
}

// n vectors in place, and n numbers. Not inlined: kernels that end with any function would
// otherwise have the code of all of them behind each of their registers.
__attribute__((noinline)) void activate_vectors(Activation activation, F* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = activated(activation, values[i]);
}

__attribute__((noinline)) void activate(Activation activation, const float* x, int64_t n,
                                        float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, activated(activation, load(x + i)));
  if (i < n) store_n(out + i, activated(activation, load_n(x + i, n - i)), n - i);
}

}  // namespace
}  // namespace satchel
