// Codes of 8 bits, made, read, looked up, added and multiplied: four for each thread.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const uint OP = 0;
layout(constant_id = 1) const uint ACTIVATION = 0;
const uint QUANTIZE = 0, DEQUANTIZE = 1, LOOKUP = 2, ADD = 3, MUL = 4, MOVE = 5;

layout(binding = 0) readonly buffer Left { uint a[]; };
layout(binding = 1) readonly buffer Right { uint b[]; };  // or the table of a look-up
layout(binding = 2) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants {
  uint shape[4], a_steps[4], b_steps[4];
  uint count, a_first, b_first, y_first;
  float a_scale, b_scale, inverse_out_scale;
  int a_zero, b_zero, out_zero;
  uint a_offset;  // elements before the first of a
} c;

#include "common.glsl"
#include "activations.glsl"
#include "codes.glsl"

uint a_code(uint at) { return byte_of(a[c.a_first + at / 4], at % 4); }
uint b_code(uint at) { return byte_of(b[c.b_first + at / 4], at % 4); }

uint result_at(uint number) {
  uint rest = number, at_a = c.a_offset, at_b = 0;
  for (int d = 3; d >= 0; --d) {
    const uint index = rest % c.shape[d];
    rest /= c.shape[d];
    at_a += index * c.a_steps[d];
    at_b += index * c.b_steps[d];
  }
  if (OP == MOVE) return a_code(at_a);
  if (OP == LOOKUP) return b_code(a_code(at_a));
  if (OP == QUANTIZE) {
    precise float ratio = uintBitsToFloat(a[c.a_first + at_a]) * c.inverse_out_scale;
    return code_of(ratio, c.out_zero);
  }
  precise float left = float(int(a_code(at_a)) - c.a_zero) * c.a_scale;
  if (OP == DEQUANTIZE) return floatBitsToUint(left);
  precise float right = float(int(b_code(at_b)) - c.b_zero) * c.b_scale;
  precise float both = OP == ADD ? left + right : left * right;
  precise float ratio = activated(ACTIVATION, both) * c.inverse_out_scale;
  return code_of(ratio, c.out_zero);
}

void main() {
  const uint number = thread_number();
  if (number * 4 >= c.count) return;
  uint codes = 0;
  for (uint i = 0; i < min(4, c.count - number * 4); ++i) {
    const uint result = result_at(number * 4 + i);
    if (OP == DEQUANTIZE)
      y[c.y_first + number * 4 + i] = result;
    else
      codes |= result << 8 * i;
  }
  if (OP != DEQUANTIZE) y[c.y_first + number] = codes;
}
