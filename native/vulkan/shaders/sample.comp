// The second step: the token, by a single workgroup. It goes to where the next run finds its token, and
// into the list of the tokens that were chosen.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const bool IS_DRAWN = false;  // else the likeliest is taken

#include "sample.glsl"

layout(binding = 0) readonly buffer Logits { float logits[]; };
layout(binding = 1) readonly buffer Blocks { Block blocks[]; };
layout(binding = 2) readonly buffer Choice { uint choice[]; };  // a random number, and the step's number
layout(binding = 3) writeonly buffer Token { int token[]; };
layout(binding = 4) writeonly buffer Chosen { int chosen[]; };

layout(push_constant) uniform Constants {
  uint count, logits_first, choice_first, token_first, chosen_first;
  float inverse_temperature;
} c;

shared uint found;
shared float before;  // what lies before it, of the sum

void main() {
  const uint thread = gl_LocalInvocationID.x, count = (c.count + BLOCK - 1) / BLOCK;
  const uint each = (count + 255) / 256;
  Best own = Best(NONE_YET, 0);
  for (uint i = thread * each; i < min((thread + 1) * each, count); ++i)
    own = better(own, Best(blocks[i].largest, blocks[i].token));
  const Best best = best_of_all(own);
  uint token_now = best.token;
  if (IS_DRAWN) {
    float sum = 0.0;
    for (uint i = thread * each; i < min((thread + 1) * each, count); ++i)
      sum += blocks[i].sum * power(blocks[i].largest, best.number, c.inverse_temperature);
    const float reached = running_sum(sum);
    if (thread == 255) {
      before = reached;
      found = best.token / BLOCK;  // where rounding finds nothing
    }
    barrier();
    const float wanted = uintBitsToFloat(choice[c.choice_first]) * before;
    barrier();
    // The block, of the thread whose sum passes what is wanted.
    if (sum > 0.0 && reached > wanted && reached - sum <= wanted) {
      float so_far = reached - sum;
      uint last = thread * each;
      for (uint i = thread * each; i < min((thread + 1) * each, count); ++i) {
        const float part = blocks[i].sum * power(blocks[i].largest, best.number, c.inverse_temperature);
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
                    ? power(logits[c.logits_first + first + i], best.number, c.inverse_temperature)
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
  token[c.token_first] = is_bad ? 0 : int(token_now);
  chosen[c.chosen_first + choice[c.choice_first + 1]] = is_bad ? -1 : int(token_now);
}
