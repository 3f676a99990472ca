// Whether turns work here: each workgroup looks at what another one wrote in the turn before, and
// writes for the next. Wrong numbers are counted.
#version 450
#extension GL_GOOGLE_include_directive : require
#define IN_TURN
layout(local_size_x = 256) in;

#include "turns.glsl"

layout(binding = 0) IN_TURNS buffer Numbers { uint numbers[]; };  // of two turns, and at first the errors

layout(push_constant) uniform Constants {
  uint turn_number;
  TURN_CONSTANTS
} c;

const uint SIZE = 256, FIRST = 64;

void main() {
  const uint groups = gl_NumWorkGroups.x, group = gl_WorkGroupID.x, thread = gl_LocalInvocationID.x;
  WAIT_FOR_TURN;
  const uint other = (group * 7 + 3) % groups, half_size = groups * SIZE;
  const uint from = FIRST + (c.turn_number + 1) % 2 * half_size, to = FIRST + c.turn_number % 2 * half_size;
  if (c.turn_number > 0 && numbers[from + other * SIZE + thread] != c.turn_number * 1000 + thread) atomicAdd(numbers[0], 1u);
  numbers[to + group * SIZE + thread] = (c.turn_number + 1) * 1000 + thread;
  END_TURN;
}
