// Attention of many tokens that follow each other in one sequence, in floats: BM tokens of a head for each
// workgroup, and KEYS keys at a time, which lie in shared memory once for all of them, and then their
// values. The largest score and the sum of powers of each token are kept up to date as keys come (flash
// attention), so that sums are in another order than attention.comp's.
//
// A thread has four tokens: with each of LANES threads some of the keys, then some of the numbers of a
// value. Words of the next keys or values are fetched while those before them are multiplied.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 128) in;

layout(constant_id = 1) const bool HAS_SOFTCAP = false;
layout(constant_id = 2) const uint DIM = 64;  // a multiple of 8
layout(constant_id = 3) const uint BM = 32;
layout(constant_id = 4) const uint KEYS = 64;  // a part of a page
layout(constant_id = 5) const bool HAS_WIDE_ROWS = false;  // rows begin at multiples of 16 bytes

layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer K { uint k[]; };
layout(binding = 1) readonly buffer K4 { uvec4 k4[]; };
layout(binding = 2) readonly buffer V { uint v[]; };
layout(binding = 2) readonly buffer V4 { uvec4 v4[]; };
layout(binding = 3) readonly buffer Step { uint numbers[]; };  // as in attention.comp
layout(binding = 4) writeonly buffer Y { float y[]; };

layout(push_constant) uniform Constants {
  uint heads, heads_per_kv, tokens, head_rows, block_rows, window;
  uint q_first, k_first, v_first, step_first, y_first;
  float scale, softcap;
} c;

#include "common.glsl"
#include "activations.glsl"
#include "cache.glsl"

const uint PAGE = 64, QUADS = DIM / 4, FOURS = BM / 4, LANES = 128 / FOURS;
const uint OWN_KEYS = (KEYS + LANES - 1) / LANES, OWN_QUADS = (QUADS + LANES - 1) / LANES;
// What is read at once: 16 bytes, or four codes with their scale and zero.
const uint READ = KIND == HALVES ? 8 : 4, READS = DIM / READ, OWN_READS = (KEYS * READS + 127) / 128;
// Of rows, so that neighbours' lie in other banks: in numbers of four, 8 bytes, and numbers of four.
const uint Q_STRIDE = QUADS + 1, T_STRIDE = (KIND == HALVES ? QUADS : 2 * QUADS) + 1, P_STRIDE = FOURS + 1;

shared vec4 queries[BM * Q_STRIDE];
shared uvec2 tile[KEYS * T_STRIDE];   // four halves, or two floats
shared vec4 powers[KEYS * P_STRIDE];  // of four tokens
shared vec4 of_threads[128];          // largest scores, and sums in the end

#define UNSEEN uintBitsToFloat(0xFF800000u)

// A thread's words of the next keys or values.
uvec4 fetched[OWN_READS];

// Behind the last key, which `last` is, there is that one again, so that all are numbers.
#define FETCH(from, from4, from_first, first)                                                              \
  [[unroll]] for (uint i = 0; i < OWN_READS; ++i) {                                                        \
    const uint number = i * 128 + gl_LocalInvocationID.x, in_row = number % READS;                         \
    const uint key = min((first) + number / READS, last);                                                  \
    const uint row = numbers[pages + key / PAGE] * c.block_rows + kv_head * c.head_rows + key % PAGE;      \
    const uint at = (from_first) + row * row_words(DIM);                                                   \
    if (KIND == BYTES)                                                                                     \
      fetched[i] = uvec4(from[at + in_row], from[at + DIM / 4], from[at + DIM / 4 + 1], 0);                \
    else if (HAS_WIDE_ROWS)                                                                                \
      fetched[i] = from4[at / 4 + in_row];                                                                 \
    else                                                                                                   \
      [[unroll]] for (uint n = 0; n < 4; ++n) fetched[i][n] = from[at + in_row * 4 + n];                   \
  }

void fill_tile() {
  [[unroll]] for (uint i = 0; i < OWN_READS; ++i) {
    const uint number = i * 128 + gl_LocalInvocationID.x;
    if (number >= KEYS * READS) continue;
    const uint at = number / READS * T_STRIDE + number % READS * 2;
    uvec4 words = fetched[i];
    if (KIND == BYTES) {
      const uvec4 codes = words.xxxx >> uvec4(0, 8, 16, 24) & 255u;
      words = floatBitsToUint(vec4(codes) * uintBitsToFloat(words.y) + uintBitsToFloat(words.z));
    }
    tile[at] = words.xy;
    tile[at + 1] = words.zw;
  }
}

vec4 numbers_at(uint row, uint quad) {
  if (KIND == HALVES) {
    const uvec2 words = tile[row * T_STRIDE + quad];
    return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
  }
  const uint at = row * T_STRIDE + quad * 2;
  return uintBitsToFloat(uvec4(tile[at], tile[at + 1]));
}

void main() {
  const uint head = gl_WorkGroupID.x, first = gl_WorkGroupID.y * BM, kv_head = head / c.heads_per_kv;
  const uint thread = gl_LocalInvocationID.x, four = thread / LANES, lane = thread % LANES;
  for (uint i = thread; i < BM * QUADS; i += 128) {
    const uint row = i / QUADS, quad = i % QUADS, token = min(first + row, c.tokens - 1);
    const uint at = c.q_first + (token * c.heads + head) * DIM + quad * 4;
    queries[row * Q_STRIDE + quad] = vec4(q[at], q[at + 1], q[at + 2], q[at + 3]);
  }
  // The keys that the thread's tokens see, and those that any token of the workgroup does.
  uvec4 own_from, own_keys;
  [[unroll]] for (uint t = 0; t < 4; ++t) {
    own_keys[t] = numbers[c.step_first + min(first + four * 4 + t, c.tokens - 1) * 4 + 1];
    own_from[t] = c.window > 0 && own_keys[t] > c.window ? own_keys[t] - c.window : 0;
  }
  const uint first_at = c.step_first + first * 4;
  const uint last_at = c.step_first + min(first + BM - 1, c.tokens - 1) * 4;
  const uint first_keys = numbers[first_at + 1], last = numbers[last_at + 1] - 1;
  const uint from = c.window > 0 && first_keys > c.window ? first_keys - c.window : 0;
  const uint pages = c.step_first + numbers[first_at];

  vec4 result[OWN_QUADS * 4];
  [[unroll]] for (uint i = 0; i < OWN_QUADS * 4; ++i) result[i] = vec4(0.0);
  vec4 largest = vec4(UNSEEN), total = vec4(0.0);  // the latter of the thread's own keys
  uint begin = from / KEYS * KEYS;
  FETCH(k, k4, c.k_first, begin)
  for (; begin <= last; begin += KEYS) {
    barrier();
    fill_tile();
    barrier();
    FETCH(v, v4, c.v_first, begin)
    vec4 scores[OWN_KEYS];
    [[unroll]] for (uint i = 0; i < OWN_KEYS; ++i) scores[i] = vec4(0.0);
    for (uint quad = 0; quad < QUADS; ++quad) {
      vec4 of_tokens[4];
      [[unroll]] for (uint t = 0; t < 4; ++t) of_tokens[t] = queries[(four * 4 + t) * Q_STRIDE + quad];
      [[unroll]] for (uint i = 0; i < OWN_KEYS; ++i) {
        const vec4 key = numbers_at(min(lane + i * LANES, KEYS - 1), quad);
        [[unroll]] for (uint t = 0; t < 4; ++t) {
          [[unroll]] for (uint n = 0; n < 4; ++n) scores[i][t] = fma(of_tokens[t][n], key[n], scores[i][t]);
        }
      }
    }
    vec4 most = vec4(UNSEEN);
    [[unroll]] for (uint i = 0; i < OWN_KEYS; ++i) {
      const uint key = begin + lane + i * LANES;
      [[unroll]] for (uint t = 0; t < 4; ++t) {
        float score = scores[i][t] * c.scale;
        if (HAS_SOFTCAP) score = c.softcap * tanh_of(score / c.softcap);
        scores[i][t] = score;
        if (lane + i * LANES < KEYS && key >= own_from[t] && key < own_keys[t]) most[t] = max(most[t], score);
      }
    }
    of_threads[thread] = most;
    barrier();
    most = largest;
    [[unroll]] for (uint i = 0; i < LANES; ++i) most = max(most, of_threads[four * LANES + i]);
    vec4 factor;
    [[unroll]] for (uint t = 0; t < 4; ++t)
      factor[t] = most[t] > UNSEEN ? exp(largest[t] - most[t]) : 1.0;  // whether it saw anything so far
    largest = most;
    total *= factor;
    [[unroll]] for (uint i = 0; i < OWN_KEYS; ++i) {
      const uint column = lane + i * LANES, key = begin + column;
      vec4 power;
      [[unroll]] for (uint t = 0; t < 4; ++t)
        power[t] = key >= own_from[t] && key < own_keys[t] ? exp(scores[i][t] - most[t]) : 0.0;
      if (column < KEYS) {
        total += power;
        powers[column * P_STRIDE + four] = power;
      }
    }
    fill_tile();
    barrier();
    FETCH(k, k4, c.k_first, begin + KEYS)
    [[unroll]] for (uint i = 0; i < OWN_QUADS * 4; ++i) result[i] *= factor[i % 4];
    for (uint column = 0; column < KEYS; ++column) {
      const vec4 power = powers[column * P_STRIDE + four];
      [[unroll]] for (uint i = 0; i < OWN_QUADS; ++i) {
        const vec4 value = numbers_at(column, min(lane + i * LANES, QUADS - 1));
        [[unroll]] for (uint t = 0; t < 4; ++t)
          result[i * 4 + t] = fma(vec4(power[t]), value, result[i * 4 + t]);
      }
    }
  }
  of_threads[thread] = total;
  barrier();
  total = vec4(0.0);
  for (uint i = 0; i < LANES; ++i) total += of_threads[four * LANES + i];
  [[unroll]] for (uint i = 0; i < OWN_QUADS; ++i) {
    const uint quad = lane + i * LANES;
    [[unroll]] for (uint t = 0; t < 4; ++t) {
      const uint token = first + four * 4 + t;
      if (quad >= QUADS || token >= c.tokens) continue;
      [[unroll]] for (uint n = 0; n < 4; ++n)
        y[c.y_first + (token * c.heads + head) * DIM + quad * 4 + n] = result[i * 4 + t][n] / total[t];
    }
  }
}
