// The first `rotary` numbers of each head, turned in pairs that lie half of it apart.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Table { float table[]; };  // [rows][cos, sin]
layout(binding = 2) writeonly buffer Y { float y[]; };

layout(push_constant) uniform Constants {
  uint count, heads, dim, rotary, x_first, table_first, y_first;
} c;

#include "common.glsl"

void main() {
  const uint i = thread_number();
  if (i >= c.count) return;
  const uint column = i % c.dim, row = i / (c.dim * c.heads), half_size = c.rotary / 2;
  const float own = x[c.x_first + i];
  float result = own;
  if (column < c.rotary) {
    const bool left = column < half_size;
    const uint pair = left ? column : column - half_size;
    const float cosine = table[c.table_first + row * c.rotary + pair];
    const float sine = table[c.table_first + row * c.rotary + half_size + pair];
    const float other = x[c.x_first + (left ? i + half_size : i - half_size)];
    result = left ? own * cosine - other * sine : own * cosine + other * sine;
  }
  y[c.y_first + i] = result;
}
