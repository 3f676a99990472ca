// Makes the counters of turns zero, for the next time that they are taken.
#version 450
layout(local_size_x = 256) in;

layout(binding = 0) writeonly buffer Turns { uint turns[]; };

layout(push_constant) uniform Constants {
  uint first, count;
} c;

void main() {
  const uint thread = gl_GlobalInvocationID.x;
  if (thread < c.count) turns[c.first + thread * 32] = 0;
}
