// Rows of words by number, of one array behind the other.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) readonly buffer Rows { int rows[]; };
layout(binding = 2) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants {
  uint count, width, all_rows, taken_rows, x_first, rows_first, y_first;
} c;

#include "common.glsl"

void main() {
  const uint i = thread_number();
  if (i >= c.count) return;
  // The host has checked the numbers; nothing else is read, whatever they are by now.
  const uint number = i / c.width, array = number / c.taken_rows;
  const uint row = min(uint(rows[c.rows_first + number % c.taken_rows]), c.all_rows - 1);
  y[c.y_first + i] = x[c.x_first + (array * c.all_rows + row) * c.width + i % c.width];
}
