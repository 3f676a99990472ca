// Elements of four bytes from one order to another, over up to four dimensions.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants {
  uint shape[4], x_steps[4], y_steps[4];
  uint count, x_first, y_first;
} c;

#include "common.glsl"

void main() {
  const uint i = thread_number();
  if (i >= c.count) return;
  uint rest = i, from = c.x_first, to = c.y_first;
  for (int d = 3; d >= 0; --d) {
    const uint index = rest % c.shape[d];
    rest /= c.shape[d];
    from += index * c.x_steps[d];
    to += index * c.y_steps[d];
  }
  y[to] = x[from];
}
