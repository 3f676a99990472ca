// The first of two steps that choose a token: of each 1,024 logits the largest, and the sum of their
// powers.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const bool IS_DRAWN = false;  // else the likeliest is taken

#include "sample.glsl"

layout(binding = 0) readonly buffer Logits { float logits[]; };
layout(binding = 1) writeonly buffer Blocks { Block blocks[]; };

layout(push_constant) uniform Constants {
  uint count, logits_first;
  float inverse_temperature;
} c;

void main() {
  const uint thread = gl_LocalInvocationID.x, first = gl_WorkGroupID.x * BLOCK + thread * OWN;
  float number[OWN];
  Best own = Best(NONE_YET, 0);
  for (uint i = 0; i < OWN; ++i) {
    number[i] = first + i < c.count ? logits[c.logits_first + first + i] : NONE_YET;
    own = better(own, Best(number[i], first + i));
  }
  const Best best = best_of_all(own);
  float sum = 0.0;
  if (IS_DRAWN) {
    for (uint i = 0; i < OWN; ++i) sum += power(number[i], best.number, c.inverse_temperature);
    sum = running_sum(sum);
  }
  if (thread == 255) blocks[gl_WorkGroupID.x] = Block(best.number, best.token, sum, 0);
}
