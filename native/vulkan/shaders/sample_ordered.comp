// The first step where the text's tokens count, or where some tokens are left out. It changes the logits
// by what the text has had and by biases, then does what sample_blocks does; and where tokens are left
// out, it puts each block's logits in order, with the sums of their powers, so that the second step can
// count those that lie above any number.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

#include "sample.glsl"
#include "sample_rule.glsl"

layout(binding = 0) buffer Logits { float logits[]; };
layout(binding = 1) writeonly buffer Blocks { Block blocks[]; };
layout(binding = 2) readonly buffer Choice { uint choice[]; };
layout(binding = 3) readonly buffer Past { uint past[]; };
layout(binding = 4) readonly buffer Chosen { int chosen[]; };
layout(binding = 5) writeonly buffer Ordered { float ordered[]; };
layout(binding = 6) writeonly buffer Sums { float sums[]; };

layout(push_constant) uniform Constants {
  uint count, logits_first, choice_first, past_first, chosen_first;
} c;

const uint IN_TEXT = 0x80000000u;  // beside how often it is in the answer

shared float numbers[BLOCK];
shared uint times[BLOCK];

void note_text(Rule rule, uint first) {
  const uint thread = gl_LocalInvocationID.x;
  for (uint i = thread; i < rule.text_count; i += 256) {
    const uint at = past[c.past_first + rule.text_first + i] - first;
    if (at < BLOCK && i < rule.question) atomicOr(times[at], IN_TEXT);
    if (at < BLOCK && i >= rule.question) atomicAdd(times[at], 1);
  }
  // Those of the runs before, which the host has not seen.
  for (uint run = thread; run < choice[c.choice_first]; run += 256) {
    const uint at = uint(chosen[c.chosen_first + run * gl_NumWorkGroups.y + gl_WorkGroupID.y]) - first;
    if (at < BLOCK) atomicAdd(times[at], 1);
  }
}

float penalized(float number, uint seen, Rule rule) {
  if (seen == 0) return number;
  if (rule.repetition != 1.0)
    number = number < 0.0 ? number * rule.repetition : number / rule.repetition;
  const uint answered = seen & ~IN_TEXT;
  if (answered > 0) number -= rule.frequency * float(answered) + rule.presence;
  return number;
}

// The largest first.
void put_in_order() {
  for (uint size = 2; size <= BLOCK; size *= 2) {
    for (uint reach = size / 2; reach > 0; reach /= 2) {
      for (uint pair = gl_LocalInvocationID.x; pair < BLOCK / 2; pair += 256) {
        const uint low = pair / reach * 2 * reach + pair % reach, high = low + reach;
        const float a = numbers[low], b = numbers[high];
        if ((low & size) == 0 ? a < b : a > b) {
          numbers[low] = b;
          numbers[high] = a;
        }
      }
      barrier();
    }
  }
}

void main() {
  const uint thread = gl_LocalInvocationID.x, first = gl_WorkGroupID.x * BLOCK, own_first = thread * OWN;
  const uint token = gl_WorkGroupID.y, logits_first = c.logits_first + token * c.count + first;
  const uint count = min(c.count - first, BLOCK);
  const float inverse_temperature = uintBitsToFloat(choice[c.choice_first + 2 + token * 2]);
  const uint rule_first = c.choice_first + 1 + 2 * gl_NumWorkGroups.y + RULE * token;
  const Rule rule = READ_RULE(rule_first);
  for (uint i = own_first; i < own_first + OWN; ++i) {
    numbers[i] = i < count ? logits[logits_first + i] : NONE_YET;
    times[i] = 0;
  }
  barrier();
  if (rule.text_count > 0) note_text(rule, first);
  barrier();
  for (uint i = own_first; i < own_first + OWN; ++i) numbers[i] = penalized(numbers[i], times[i], rule);
  barrier();
  for (uint i = thread; i < rule.bias_count; i += 256) {
    const uint entry = c.past_first + rule.bias_first + 2 * i, at = past[entry] - first;
    if (at < count) numbers[at] += uintBitsToFloat(past[entry + 1]);
  }
  barrier();
  Best own = Best(NONE_YET, 0);
  for (uint i = own_first; i < own_first + OWN; ++i) {
    own = better(own, Best(numbers[i], first + i));
    if (i < count && rule.text_count + rule.bias_count > 0) logits[logits_first + i] = numbers[i];
  }
  const Best best = best_of_all(own);
  const bool is_drawn = inverse_temperature > 0.0, is_cut = is_drawn && cuts(rule);
  if (is_cut) put_in_order();
  float part[OWN], sum = 0.0;
  if (is_drawn) {
    for (uint i = 0; i < OWN; ++i) {
      part[i] = power(numbers[own_first + i], best.number, inverse_temperature);
      sum += part[i];
    }
    const vec2 reached = running_sum(sum);
    sum = reached.y;
    if (is_cut) {
      float so_far = reached.x;
      const uint at = (token * gl_NumWorkGroups.x + gl_WorkGroupID.x) * BLOCK + own_first;
      for (uint i = 0; i < OWN; ++i) {
        so_far += part[i];
        ordered[at + i] = numbers[own_first + i];
        sums[at + i] = so_far;
      }
    }
  }
  if (thread == 255) blocks[token * gl_NumWorkGroups.x + gl_WorkGroupID.x] = Block(best.number, best.token, sum, 0);
}
