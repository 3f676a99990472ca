// The second step: a workgroup for each token. They go to where the next run finds its tokens, and into
// the list of those that were chosen.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

#include "sample.glsl"

layout(binding = 0) readonly buffer Logits { float logits[]; };
layout(binding = 1) readonly buffer Blocks { Block blocks[]; };
// The run's number; then for each token a random number, and what logits are multiplied with, 0 where
// the likeliest is taken.
layout(binding = 2) readonly buffer Choice { uint choice[]; };
layout(binding = 3) writeonly buffer Tokens { int tokens[]; };
layout(binding = 4) writeonly buffer Chosen { int chosen[]; };

layout(push_constant) uniform Constants {
  uint count, logits_first, choice_first, tokens_first, chosen_first;
} c;

shared uint found;
shared float before;  // what lies before it, of the sum

void main() {
  const uint thread = gl_LocalInvocationID.x, count = (c.count + BLOCK - 1) / BLOCK;
  const uint each = (count + 255) / 256, own_token = gl_WorkGroupID.x, own_choice = c.choice_first + 1 + own_token * 2;
  const uint logits_first = c.logits_first + own_token * c.count, blocks_first = own_token * count;
  const float inverse_temperature = uintBitsToFloat(choice[own_choice + 1]);
  Best own = Best(NONE_YET, 0);
  for (uint i = thread * each; i < min((thread + 1) * each, count); ++i)
    own = better(own, Best(blocks[blocks_first + i].largest, blocks[blocks_first + i].token));
  const Best best = best_of_all(own);
  uint token_now = best.token;
  if (inverse_temperature > 0.0) {
    float sum = 0.0;
    for (uint i = thread * each; i < min((thread + 1) * each, count); ++i)
      sum += blocks[blocks_first + i].sum * power(blocks[blocks_first + i].largest, best.number, inverse_temperature);
    const float reached = running_sum(sum);
    if (thread == 255) {
      before = reached;
      found = best.token / BLOCK;  // where rounding finds nothing
    }
    barrier();
    const float wanted = uintBitsToFloat(choice[own_choice]) * before;
    barrier();
    // The block, of the thread whose sum passes what is wanted.
    if (sum > 0.0 && reached > wanted && reached - sum <= wanted) {
      float so_far = reached - sum;
      uint last = thread * each;
      for (uint i = thread * each; i < min((thread + 1) * each, count); ++i) {
        const float part = blocks[blocks_first + i].sum * power(blocks[blocks_first + i].largest, best.number, inverse_temperature);
        last = i;
        if (so_far + part > wanted) break;
        so_far += part;
      }
      found = last;
      before = so_far;
    }
    barrier();
    const uint first = found * BLOCK + thread * OWN;
    const float rest = wanted - before;
    float part[OWN], all = 0.0;
    for (uint i = 0; i < OWN; ++i) {
      part[i] = first + i < c.count
                    ? power(logits[logits_first + first + i], best.number, inverse_temperature)
                    : 0.0;
      all += part[i];
    }
    const float within = running_sum(all);
    if (thread == 0) found = best.token;
    barrier();
    if (all > 0.0 && within > rest && within - all <= rest) {
      float so_far = within - all;
      for (uint i = 0; i < OWN; ++i) {
        if (part[i] > 0.0) found = first + i;
        so_far += part[i];
        if (so_far > rest) break;
      }
    }
    barrier();
    token_now = found;
  }
  if (thread != 0) return;
  const bool is_bad = is_no_number(best.number) || abs(best.number) == uintBitsToFloat(0x7F800000u);
  tokens[c.tokens_first + own_token] = is_bad ? 0 : int(token_now);
  chosen[c.chosen_first + choice[c.choice_first] * gl_NumWorkGroups.x + own_token] =
      is_bad ? -1 : int(token_now);
}
