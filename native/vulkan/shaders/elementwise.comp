// Ops on each element alone, of one operand or of two that are broadcast over up to four
// dimensions.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const uint OP = 0;  // an activation, or one of these:
const uint ADD = 16, SUB = 17, MUL = 18, DIV = 19, SILU_MUL = 20, GELU_TANH_MUL = 21, AFFINE = 22,
           CLAMP = 23, NEG = 24, ABS = 25, EXP = 26, SQRT = 27, RSQRT = 28;

layout(binding = 0) readonly buffer Left { float a[]; };
layout(binding = 1) readonly buffer Right { float b[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };

layout(push_constant) uniform Constants {
  uint shape[4], a_steps[4], b_steps[4];
  uint count, a_first, b_first, y_first;
  float first, second;  // an affine's scale and shift, a clamp's limits
} c;

#include "common.glsl"
#include "activations.glsl"

float computed(float x, float z) {
  switch (OP) {
    case ADD: return x + z;
    case SUB: return x - z;
    case MUL: return x * z;
    case DIV: return x / z;
    case SILU_MUL: return x * sigmoid_of(x) * z;
    case GELU_TANH_MUL: return gelu_tanh_of(x) * z;
    case AFFINE: return x * c.first + c.second;
    case CLAMP: return limited(x, c.first, c.second);
    case NEG: return -x;
    case ABS: return abs(x);
    case EXP: return exp_of(x);
    case SQRT: return sqrt(x);
    case RSQRT: return 1.0 / sqrt(x);
    default: return activated(OP, x);
  }
}

void main() {
  const uint i = thread_number();
  if (i >= c.count) return;
  uint rest = i, at_a = c.a_first, at_b = c.b_first;
  for (int d = 3; d >= 0; --d) {
    const uint index = rest % c.shape[d];
    rest /= c.shape[d];
    at_a += index * c.a_steps[d];
    at_b += index * c.b_steps[d];
  }
  y[c.y_first + i] = computed(a[at_a], OP >= ADD && OP <= GELU_TANH_MUL ? b[at_b] : 0.0);
}
