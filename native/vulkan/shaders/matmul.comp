// y = a * b for matrices that are computed, over up to four dimensions that are broadcast: a thread
// for each element of y.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(binding = 0) readonly buffer Left { float a[]; };
layout(binding = 1) readonly buffer Right { float b[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };

layout(push_constant) uniform Constants {
  uint shape[4], a_steps[4], b_steps[4];
  uint count, rows, inner, cols, a_first, b_first, y_first;
} c;

#include "common.glsl"

void main() {
  const uint at = thread_number();
  if (at >= c.count) return;
  const uint col = at % c.cols, row = at / c.cols % c.rows;
  uint left = c.a_first + row * c.inner, right = c.b_first + col;
  uint rest = at / (c.cols * c.rows);
  for (int d = 3; d >= 0; --d) {
    left += rest % c.shape[d] * c.a_steps[d];
    right += rest % c.shape[d] * c.b_steps[d];
    rest /= c.shape[d];
  }
  float sum = 0.0;
  for (uint k = 0; k < c.inner; ++k) sum += a[left + k] * b[right + k * c.cols];
  y[c.y_first + at] = sum;
}
