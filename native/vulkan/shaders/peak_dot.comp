// How fast bytes are multiplied without matrices, for `satchel bench`: 16 sums of 4 products each in
// turn.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;

layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { int y[]; };

layout(push_constant) uniform Constants { uint rounds; } c;

#include "dot.glsl"

void main() {
  const uint a = x[gl_LocalInvocationID.x], b = x[gl_LocalInvocationID.x + 1];
  int sums[16];
  [[unroll]] for (int i = 0; i < 16; ++i) sums[i] = i;
  for (uint round = 0; round < c.rounds; ++round) {
    [[unroll]] for (int i = 0; i < 16; ++i) sums[i] += dot4(a + uint(sums[i]), b);
  }
  int all = 0;
  [[unroll]] for (int i = 0; i < 16; ++i) all += sums[i];
  if (all == 0x7FFFFFFF) y[0] = all;  // never, but nobody can know
}
