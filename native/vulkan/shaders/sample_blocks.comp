// The first of two steps that choose tokens: of each 1,024 logits of one the largest, and the sum of
// their powers.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

#include "sample.glsl"

layout(binding = 0) readonly buffer Logits { float logits[]; };
layout(binding = 1) writeonly buffer Blocks { Block blocks[]; };
layout(binding = 2) readonly buffer Choice { uint choice[]; };

layout(push_constant) uniform Constants {
  uint count, logits_first, choice_first;
} c;

void main() {
  const uint thread = gl_LocalInvocationID.x, first = gl_WorkGroupID.x * BLOCK + thread * OWN;
  const uint token = gl_WorkGroupID.y, logits_first = c.logits_first + token * c.count;
  const float inverse_temperature = uintBitsToFloat(choice[c.choice_first + 2 + token * 2]);
  float number[OWN];
  Best own = Best(NONE_YET, 0);
  for (uint i = 0; i < OWN; ++i) {
    number[i] = first + i < c.count ? logits[logits_first + first + i] : NONE_YET;
    own = better(own, Best(number[i], first + i));
  }
  const Best best = best_of_all(own);
  float sum = 0.0;
  if (inverse_temperature > 0.0) {
    for (uint i = 0; i < OWN; ++i) sum += power(number[i], best.number, inverse_temperature);
    sum = running_sum(sum).y;
  }
  if (thread == 255) blocks[token * gl_NumWorkGroups.x + gl_WorkGroupID.x] = Block(best.number, best.token, sum, 0);
}
