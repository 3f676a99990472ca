// softmax along an axis: a workgroup for each line, whose elements are `inner` apart.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 128) in;

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };

layout(push_constant) uniform Constants { uint size, inner, lines, x_first, y_first; } c;

#include "common.glsl"

shared float parts[128];

void main() {
  const uint line = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  const uint thread = gl_LocalInvocationID.x;
  if (line >= c.lines) return;
  const uint base = line / c.inner * c.size * c.inner + line % c.inner;
  float largest = uintBitsToFloat(0xFF800000u);
  for (uint i = thread; i < c.size; i += 128)
    largest = max(largest, x[c.x_first + base + i * c.inner]);
  parts[thread] = largest;
  for (uint half_size = 64; half_size > 0; half_size /= 2) {
    barrier();
    if (thread < half_size) parts[thread] = max(parts[thread], parts[thread + half_size]);
  }
  barrier();
  largest = parts[0];
  barrier();
  float total = 0.0;
  for (uint i = thread; i < c.size; i += 128)
    total += exp_of(x[c.x_first + base + i * c.inner] - largest);
  parts[thread] = total;
  for (uint half_size = 64; half_size > 0; half_size /= 2) {
    barrier();
    if (thread < half_size) parts[thread] += parts[thread + half_size];
  }
  barrier();
  const float inverse = 1.0 / parts[0];
  for (uint i = thread; i < c.size; i += 128) {
    const uint at = base + i * c.inner;
    y[c.y_first + at] = exp_of(x[c.x_first + at] - largest) * inverse;
  }
}
