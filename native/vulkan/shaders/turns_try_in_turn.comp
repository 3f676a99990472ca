// Whether turns work here: each workgroup looks for what another one writes in the turn before, and
// writes for the next. Wrong numbers are counted.
#version 450
#extension GL_GOOGLE_include_directive : require
#define IN_TURN
layout(local_size_x = 256) in;

#include "turns.glsl"

layout(binding = 0) IN_TURNS readonly buffer Before { uint before[]; };
layout(binding = 1) IN_TURNS writeonly buffer Now { uint now[]; };
layout(binding = 2) buffer Errors { uint errors; };

layout(push_constant) uniform Constants {
  uint turn;
} c;

void main() {
  const uint group = gl_WorkGroupID.x, thread = gl_LocalInvocationID.x, size = gl_WorkGroupSize.x;
  const uint other = (group * 7 + 3) % gl_NumWorkGroups.x;
  if (c.turn > 0) {
    uint found;
    AWAIT(found = before[other * size + thread], is_there(found))
    if (found != c.turn * 1000 + thread) atomicAdd(errors, 1u);
  }
  now[group * size + thread] = (c.turn + 1) * 1000 + thread;
}
