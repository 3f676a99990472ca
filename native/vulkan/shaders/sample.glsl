// What the two steps that choose a token share, for workgroups of 256.
struct Best {
  float number;
  uint token;
};
struct Block {
  float largest;
  uint token;
  float sum;  // of powers, if the token is drawn
  uint unused;
};
const uint BLOCK = 1024, OWN = 4;  // logits of a workgroup, and of a thread
#define NONE_YET uintBitsToFloat(0xFF800000u)

shared Best bests[256];
shared float running[2][256];

bool is_no_number(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }

// The larger one, of equal ones the first; what is not a number wins, so that it is found.
Best better(Best a, Best b) {
  if (is_no_number(a.number)) return a;
  if (is_no_number(b.number)) return b;
  return b.number > a.number || (b.number == a.number && b.token < a.token) ? b : a;
}

Best best_of_all(Best own) {
  const uint thread = gl_LocalInvocationID.x;
  bests[thread] = own;
  for (uint half_size = 128; half_size > 0; half_size /= 2) {
    barrier();
    if (thread < half_size) bests[thread] = better(bests[thread], bests[thread + half_size]);
  }
  barrier();
  const Best best = bests[0];
  barrier();
  return best;
}

float power(float number, float largest, float inverse_temperature) {
  return number == NONE_YET ? 0.0 : exp((number - largest) * inverse_temperature);
}

// The sum of the numbers of all threads before this one, and the same with its own.
vec2 running_sum(float own) {
  const uint thread = gl_LocalInvocationID.x;
  uint from = 0;
  running[0][thread] = own;
  for (uint reach = 1; reach < 256; reach *= 2) {
    barrier();
    running[1 - from][thread] =
        running[from][thread] + (thread >= reach ? running[from][thread - reach] : 0.0);
    from = 1 - from;
  }
  barrier();
  const vec2 sum = vec2(thread > 0 ? running[from][thread - 1] : 0.0, running[from][thread]);
  barrier();
  return sum;
}
