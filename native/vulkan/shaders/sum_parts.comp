// Adds up what workgroups found of the same results over parts of the columns, and a residual.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const bool HAS_RESIDUAL = false;

layout(binding = 0) readonly buffer Parts { float parts[]; };
layout(binding = 1) readonly buffer Residual { float residual[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };

layout(push_constant) uniform Constants {
  uint count, splits, parts_first, residual_first, y_first;
} c;

#include "common.glsl"

void main() {
  const uint at = thread_number();
  if (at >= c.count) return;
  float sum = 0.0;
  for (uint i = 0; i < c.splits; ++i) sum += parts[c.parts_first + i * c.count + at];
  if (HAS_RESIDUAL) sum += residual[c.residual_first + at];
  y[c.y_first + at] = sum;
}
