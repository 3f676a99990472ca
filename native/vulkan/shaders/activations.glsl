// The activation functions, numbered as in native/kernels/kernels.h.
const uint NONE = 0, RELU = 1, RELU6 = 2, HARDSWISH = 3, HARDSIGMOID = 4, SILU = 5, GELU = 6,
           GELU_TANH = 7, SIGMOID = 8, TANH = 9;

float sigmoid_of(float x) { return 1.0 / (1.0 + exp_of(-x)); }

// By its bits: drivers may take comparisons for those of numbers, and make a max of them.
bool is_no_number(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }

// Unlike clamp, what is not a number stays so.
float limited(float x, float low, float high) {
  return is_no_number(x) ? x : x < low ? low : x > high ? high : x;
}

float hardsigmoid_of(float x) { return limited(x + 3.0, 0.0, 6.0) * (1.0 / 6.0); }

// Neither overflows for large numbers nor loses digits of small ones.
float tanh_of(float x) {
  const float square = x * x, size = abs(x);
  if (size < 0.3) {
    float p = 0.021869488536155203;
    p = p * square - 0.05396825396825397;
    p = p * square + 0.13333333333333333;
    p = p * square - 0.3333333333333333;
    return x + x * (p * square);
  }
  const float power = exp_of(-2.0 * size);
  return sign(x) * ((1.0 - power) / (1.0 + power));
}

// As the CPU's: 1/2 + x * p(x^2) within |x| <= 5.5.
float gelu_of(float x) {
  const float end = 5.5, inside = limited(x, -end, end);
  const float t = inside * inside * (2.0 / (end * end)) - 1.0;
  float p = -9.16464545e-4;
  p = p * t + 2.59829871e-3;
  p = p * t - 2.50821118e-3;
  p = p * t + 2.46121222e-3;
  p = p * t - 6.29990548e-3;
  p = p * t + 1.14374002e-2;
  p = p * t - 1.53713943e-2;
  p = p * t + 2.00248826e-2;
  p = p * t - 2.59419158e-2;
  p = p * t + 3.21143791e-2;
  p = p * t - 3.88047360e-2;
  p = p * t + 4.77355607e-2;
  p = p * t - 6.41719773e-2;
  p = p * t + 1.28551945e-1;
  return x < -end ? 0.0 : x * (inside * p + 0.5);
}

float gelu_tanh_of(float x) {
  return x / (1.0 + exp_of((x * x * 0.044715 + 1.0) * x * -1.5957691216057308));
}

float activated(uint activation, float x) {
  switch (activation) {
    case RELU: return is_no_number(x) || x > 0.0 ? x : 0.0;
    case RELU6: return limited(x, 0.0, 6.0);
    case HARDSWISH: return x * hardsigmoid_of(x);
    case HARDSIGMOID: return hardsigmoid_of(x);
    case SILU: return x * sigmoid_of(x);
    case GELU: return gelu_of(x);
    case GELU_TANH: return gelu_tanh_of(x);
    case SIGMOID: return sigmoid_of(x);
    case TANH: return tanh_of(x);
    default: return x;
  }
}
