// What the shaders of the second step share: a workgroup for each token. Whoever includes it says what is
// kept of a block, in powers of what lies below the likeliest token, and which of its tokens are.
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

float inverse_temperature;  // 0: the likeliest

void read_temperature() {
  inverse_temperature = uintBitsToFloat(choice[c.choice_first + 2 + gl_WorkGroupID.x * 2]);
}

float mass_of(uint block, Best best);
bool is_kept(float number, uint token);

shared uint found;
shared float before;  // what lies before it, of the sum

uint block_count() { return (c.count + BLOCK - 1) / BLOCK; }
uint own_block(uint block) { return gl_WorkGroupID.x * block_count() + block; }

// The blocks of a thread lie behind one another.
uint blocks_of_thread() { return (block_count() + 255) / 256; }
uint first_block() { return gl_LocalInvocationID.x * blocks_of_thread(); }
uint end_block() { return min(first_block() + blocks_of_thread(), block_count()); }

float own_logit(uint token) {
  return token < c.count ? logits[c.logits_first + gl_WorkGroupID.x * c.count + token] : NONE_YET;
}

Best best_of_blocks() {
  Best own = Best(NONE_YET, 0);
  for (uint i = first_block(); i < end_block(); ++i)
    own = better(own, Best(blocks[own_block(i)].largest, blocks[own_block(i)].token));
  return best_of_all(own);
}

uint drawn_token(Best best) {
  const uint thread = gl_LocalInvocationID.x;
  float sum = 0.0;
  for (uint i = first_block(); i < end_block(); ++i) sum += mass_of(i, best);
  const vec2 reached = running_sum(sum);
  if (thread == 255) {
    before = reached.y;
    found = best.token / BLOCK;  // where rounding finds nothing
  }
  barrier();
  const float wanted = uintBitsToFloat(choice[c.choice_first + 1 + gl_WorkGroupID.x * 2]) * before;
  barrier();
  // The block, of the thread whose sum passes what is wanted.
  if (sum > 0.0 && reached.x <= wanted && wanted < reached.y) {
    float so_far = reached.x;
    uint last = first_block();
    for (uint i = first_block(); i < end_block(); ++i) {
      const float part = mass_of(i, best);
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
    const float number = own_logit(first + i);
    part[i] = is_kept(number, first + i) ? power(number, best.number, inverse_temperature) : 0.0;
    all += part[i];
  }
  const vec2 in_block = running_sum(all);
  if (thread == 0) found = best.token;
  barrier();
  if (all > 0.0 && in_block.x <= rest && rest < in_block.y) {
    float so_far = in_block.x;
    for (uint i = 0; i < OWN; ++i) {
      if (part[i] > 0.0) found = first + i;
      so_far += part[i];
      if (so_far > rest) break;
    }
  }
  barrier();
  return found;
}

bool has_meaning(float number) {
  return !is_no_number(number) && abs(number) != uintBitsToFloat(0x7F800000u);
}

// To where the next run finds its tokens, and into the list of those that were chosen.
void give(uint token, Best best) {
  if (gl_LocalInvocationID.x != 0) return;
  const bool is_good = has_meaning(best.number);
  tokens[c.tokens_first + gl_WorkGroupID.x] = is_good ? int(token) : 0;
  chosen[c.chosen_first + choice[c.choice_first] * gl_NumWorkGroups.x + gl_WorkGroupID.x] =
      is_good ? int(token) : -1;
}
