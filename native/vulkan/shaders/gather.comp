// y[o][n][i] = x[o][numbers[o][n][i]][i]: entries of an axis, by numbers of their own everywhere.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) readonly buffer Numbers { uint numbers[]; };
layout(binding = 2) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants {
  uint count, inner, have, taken, x_first, numbers_first, y_first;
} c;

#include "common.glsl"

void main() {
  const uint at = thread_number();
  if (at >= c.count) return;
  const uint line = at / (c.taken * c.inner), number = numbers[c.numbers_first + at];
  y[c.y_first + at] = x[c.x_first + (line * c.have + number) * c.inner + at % c.inner];
}
