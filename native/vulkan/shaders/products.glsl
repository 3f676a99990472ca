// What two layers of one input become together; PRODUCT comes before it.
const uint SILU_MUL = 1, GELU_TANH_MUL = 2;

float product_of(float left, float right) {
  return (PRODUCT == SILU_MUL ? left * sigmoid_of(left) : gelu_tanh_of(left)) * right;
}
