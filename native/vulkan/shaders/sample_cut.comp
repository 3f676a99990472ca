// The second step where some tokens are left out: those below a cut. The blocks' logits lie in order, so
// that each trial of a cut reads a few of them, however many tokens lie above it.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

#include "sample.glsl"
#include "sample_draw.glsl"
#include "sample_rule.glsl"

layout(binding = 5) readonly buffer Ordered { float ordered[]; };
layout(binding = 6) readonly buffer Sums { float sums[]; };

const uint MOST_BLOCKS = 512;
// Powers of what lies further below the likeliest, in temperatures, are no numbers of 32 bits.
const float FARTHEST = 87.0;

struct Share {
  uint count;  // of tokens
  float mass;
};

shared Share shares[256];
// Of a block's logits so many lie above the cut for certain, and so many may not lie below it; what a
// trial found; and what makes its powers those of the likeliest of all.
shared uint above[MOST_BLOCKS], within[MOST_BLOCKS], tried[MOST_BLOCKS];
shared float scale[MOST_BLOCKS];
shared uint first_tied;  // of the tokens that lie on the cut, those from this one on are kept

float cut = NONE_YET, power_of_cut = 0.0;
bool is_cut = false;

Share total_of(Share own) {
  const uint thread = gl_LocalInvocationID.x;
  shares[thread] = own;
  for (uint half_size = 128; half_size > 0; half_size /= 2) {
    barrier();
    if (thread < half_size) {
      shares[thread].count += shares[thread + half_size].count;
      shares[thread].mass += shares[thread + half_size].mass;
    }
  }
  barrier();
  const Share total = shares[0];
  barrier();
  return total;
}

float mass_of_first(uint block, uint count) {
  return count == 0 ? 0.0 : sums[own_block(block) * BLOCK + count - 1] * scale[block];
}

float mass_of(uint block, Best best) {
  if (is_cut) return mass_of_first(block, above[block]) + float(within[block] - above[block]) * power_of_cut;
  const Block own = blocks[own_block(block)];
  return own.sum * power(own.largest, best.number, inverse_temperature);
}

bool is_kept(float number, uint token) {
  return number > cut || (number == cut && (!is_cut || token >= first_tied));
}

// How many of a block's logits are no less; from so many to so many, as is known already.
uint count_from(uint block, float least, uint from, uint to) {
  const uint first = own_block(block) * BLOCK;
  while (from < to) {
    const uint middle = (from + to) / 2;
    if (ordered[first + middle] >= least) {
      from = middle + 1;
    } else {
      to = middle;
    }
  }
  return from;
}

Share try_cut(float least) {
  Share own = Share(0, 0.0);
  for (uint i = first_block(); i < end_block(); ++i) {
    tried[i] = count_from(i, least, above[i], within[i]);
    own.count += tried[i];
    own.mass += mass_of_first(i, tried[i]);
  }
  return total_of(own);
}

float next_above(float number) {
  if (number == 0.0) return 1e-30;
  return uintBitsToFloat(floatBitsToUint(number) + (number > 0.0 ? 1 : -1));
}

// Moves the cut up to the highest one at which there are so many tokens, or such a mass of them, and
// `kept` with it; `least` may stay below it where there is nothing between. The share of what lies
// above the cut.
Share raise_cut(inout float least, inout Share kept, float largest, uint count, float mass) {
  float most = next_above(largest);
  Share certain = Share(0, 0.0);
  for (uint i = first_block(); i < end_block(); ++i) above[i] = 0;
  while (kept.count > certain.count + 1) {
    const float middle = 0.5 * least + 0.5 * most;
    if (!(middle > least && middle < most)) break;  // those between are equal
    const Share share = try_cut(middle);
    const bool reaches = share.count >= count && share.mass >= mass;
    for (uint i = first_block(); i < end_block(); ++i) {
      if (reaches) within[i] = tried[i];
      if (!reaches) above[i] = tried[i];
    }
    if (reaches) {
      least = middle;
      kept = share;
    } else {
      most = middle;
      certain = share;
    }
  }
  Best own = Best(NONE_YET, 0);
  for (uint i = first_block(); i < end_block(); ++i) {
    if (above[i] < within[i]) own = better(own, Best(ordered[own_block(i) * BLOCK + above[i]], 0));
  }
  cut = best_of_all(own).number;
  return certain;
}

// Of tokens on the cut only so many are kept: those with the highest numbers.
void keep_tied(uint wanted, uint all) {
  const uint thread = gl_LocalInvocationID.x;
  uint own = 0;
  for (uint i = first_block(); i < end_block(); ++i) own += within[i] - above[i];
  uint behind = all - uint(running_sum(float(own)).y);  // in blocks of later threads
  for (uint i = end_block(); i > first_block(); --i) {
    const uint tied = within[i - 1] - above[i - 1];
    const uint left = wanted > behind ? min(wanted - behind, tied) : 0;
    within[i - 1] = above[i - 1] + left;
    if (left > 0 && behind + left == wanted) {  // the lowest of them are here
      found = i - 1;
      first_tied = tied - left;  // how many come before them
    }
    behind += tied;
  }
  barrier();
  const uint first = found * BLOCK + thread * OWN, before_them = first_tied;
  uint here = 0;
  for (uint i = 0; i < OWN; ++i) here += own_logit(first + i) == cut ? 1 : 0;
  uint reached = uint(running_sum(float(here)).x);
  for (uint i = 0; i < OWN; ++i) {
    if (own_logit(first + i) != cut) continue;
    if (reached == before_them) first_tied = first + i;
    ++reached;
  }
  barrier();
}

void find_cut(Rule rule, Best best) {
  const float temperature = 1.0 / inverse_temperature, largest = best.number;
  float least = max(largest - FARTHEST * temperature, -3e38);
  for (uint i = first_block(); i < end_block(); ++i) {
    scale[i] = power(blocks[own_block(i)].largest, largest, inverse_temperature);
    above[i] = 0;
    within[i] = BLOCK;
  }
  if (gl_LocalInvocationID.x == 0) first_tied = 0;
  Share kept = try_cut(least);
  for (uint i = first_block(); i < end_block(); ++i) above[i] = within[i] = tried[i];
  cut = least;
  if (rule.top_k > 0 && rule.top_k < kept.count) raise_cut(least, kept, largest, rule.top_k, 0.0);
  if (rule.top_p < 1.0) {
    const float mass = rule.top_p * kept.mass;
    const Share certain = raise_cut(least, kept, largest, 0, mass);
    const uint tied = kept.count - certain.count;
    power_of_cut = power(cut, largest, inverse_temperature);
    const float needed = power_of_cut > 0.0 ? ceil((mass - certain.mass) / power_of_cut) : float(tied);
    if (needed < float(tied)) keep_tied(uint(max(needed, 1.0)), tied);
  }
  if (largest - rule.reach > cut) {
    cut = largest - rule.reach;
    for (uint i = first_block(); i < end_block(); ++i)
      above[i] = within[i] = count_from(i, cut, 0, within[i]);
    if (gl_LocalInvocationID.x == 0) first_tied = 0;
  }
  power_of_cut = power(cut, largest, inverse_temperature);
  barrier();
}

void main() {
  read_temperature();
  const Best best = best_of_blocks();
  uint token = best.token;
  if (inverse_temperature > 0.0 && has_meaning(best.number)) {
    const uint rule_first = c.choice_first + 1 + 2 * gl_NumWorkGroups.x + RULE * gl_WorkGroupID.x;
    const Rule rule = READ_RULE(rule_first);
    is_cut = cuts(rule);
    if (is_cut) find_cut(rule, best);
    token = drawn_token(best);
  }
  give(token, best);
}
