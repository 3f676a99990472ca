// The order of each line along an axis: an element's place is the number of those before it. Equal
// ones stay as they come, and what is no number is the greatest. A workgroup for each line.
#version 450
layout(local_size_x = 128) in;

layout(constant_id = 0) const bool FLOATS = true;
layout(constant_id = 1) const bool DESCENDING = false;

layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants { uint size, inner, lines, x_first, y_first; } c;

shared uint keys[128];

// A whole number in the order of the elements.
uint key_of(uint bits) {
  if (!FLOATS) return bits ^ 0x80000000u;
  const uint size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return 0xFFFFFFFFu;
  if (size == 0u) return 0x80000000u;  // both zeros are equal
  return bits == size ? bits | 0x80000000u : ~bits;
}

void main() {
  const uint line = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  const uint thread = gl_LocalInvocationID.x;
  if (line >= c.lines) return;
  const uint base = line / c.inner * c.size * c.inner + line % c.inner;
  for (uint begin = 0; begin < c.size; begin += 128) {
    const uint i = begin + thread;
    const uint own = key_of(x[c.x_first + base + min(i, c.size - 1) * c.inner]);
    uint place = 0;
    for (uint first = 0; first < c.size; first += 128) {
      const uint other = min(first + thread, c.size - 1);
      barrier();
      keys[thread] = key_of(x[c.x_first + base + other * c.inner]);
      barrier();
      for (uint j = 0; j < min(128u, c.size - first); ++j) {
        const bool before = DESCENDING ? keys[j] > own : keys[j] < own;
        if (before || keys[j] == own && first + j < i) ++place;
      }
    }
    if (i < c.size) y[c.y_first + base + place * c.inner] = i;
  }
}
