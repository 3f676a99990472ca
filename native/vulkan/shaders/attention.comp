// Attention over the rows of caches: a workgroup for each head of each token, which goes through
// its keys in blocks of 256; or, where that would leave most of a device idle, one for each block,
// and attention_join puts them together. Sums are the same either way.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;

layout(constant_id = 1) const bool HAS_SOFTCAP = false;
layout(constant_id = 2) const uint DIM = 64;  // of a head; even
layout(constant_id = 3) const bool IS_SPLIT = false;
layout(constant_id = 4) const bool HAS_WIDE_ROWS = false;  // rows begin at multiples of 16 bytes


layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer K { uint k[]; };
layout(binding = 1) readonly buffer K4 { uvec4 k4[]; };
layout(binding = 2) readonly buffer V { uint v[]; };
// Of each token four numbers, then lists: where its pages begin, how many keys it sees one after
// the other, and where the rows that it sees behind them begin, and their number.
layout(binding = 3) readonly buffer Step { uint numbers[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };  // the result, or what is joined

layout(push_constant) uniform Constants {
  uint heads, heads_per_kv, splits, head_rows, block_rows, window;
  uint q_first, k_first, v_first, step_first, y_first;
  float scale, softcap;
} c;

#include "common.glsl"
#include "activations.glsl"
#include "cache.glsl"
#include "joined.glsl"
#include "row_sums.glsl"

const uint BLOCK = 256, PAGE = 64;
const uint PAIRS = DIM / 2, SLICES = 256 / PAIRS;  // a thread has two numbers of some values
shared float query[DIM];
shared float scores[BLOCK];
shared uint rows[BLOCK];
shared vec2 parts[SLICES][PAIRS];

const bool IS_WIDE = KIND == HALVES && HAS_WIDE_ROWS;

// What a thread has of a block: its key's row, and whether the token sees it.
uint own_place;
bool is_seen;

float key_dot(uint at) {
  float sum = 0.0;
  if (KIND == FLOATS) {
    for (uint i = 0; i < DIM; ++i) sum += query[i] * uintBitsToFloat(k[at + i]);
  } else if (IS_WIDE) {
    uvec4 read[DIM < 8 ? 1 : DIM / 8];
    [[unroll]] for (uint i = 0; i < DIM / 8; ++i) read[i] = k4[at / 4 + i];
    [[unroll]] for (uint i = 0; i < DIM / 8; ++i) {
      const uvec4 words = read[i];
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        const vec2 pair = unpackHalf2x16(words[j]);
        sum += query[8 * i + 2 * j] * pair.x + query[8 * i + 2 * j + 1] * pair.y;
      }
    }
  } else if (KIND == HALVES) {
    for (uint i = 0; i < DIM / 2; ++i) {
      const vec2 pair = unpackHalf2x16(k[at + i]);
      sum += query[2 * i] * pair.x + query[2 * i + 1] * pair.y;
    }
  } else {
    const float scale = uintBitsToFloat(k[at + DIM / 4]);
    const float zero = uintBitsToFloat(k[at + DIM / 4 + 1]);
    for (uint i = 0; i < DIM; ++i)
      sum += query[i] * (float(k[at + i / 4] >> 8 * (i % 4) & 255u) * scale + zero);
  }
  return sum;
}

vec2 values_at(uint at, uint pair) {
  if (KIND == FLOATS) return uintBitsToFloat(uvec2(v[at + 2 * pair], v[at + 2 * pair + 1]));
  if (KIND == HALVES) return unpackHalf2x16(v[at + pair]);
  const uint word = v[at + pair / 2] >> 16 * (pair % 2);
  return vec2(word & 255u, word >> 8 & 255u) * uintBitsToFloat(v[at + DIM / 4]) +
         uintBitsToFloat(v[at + DIM / 4 + 1]);
}

void read_values(out vec2 read[8], uint n, uint pair) {
  [[unroll]] for (uint i = 0; i < 8; ++i)
    read[i] = values_at(rows[min(n + i * SLICES, BLOCK - 1)], pair);
}

void find_own(uint token, uint kv_head, uint first) {
  const uint thread = gl_LocalInvocationID.x, at = c.step_first + token * 4;
  const uint pages = c.step_first + numbers[at], line = numbers[at + 1];
  const uint others = c.step_first + numbers[at + 2], keys = line + numbers[at + 3];
  const uint from = c.window > 0 && keys > c.window ? keys - c.window : 0;
  const uint key = first + thread;
  is_seen = key >= from && key < keys;
  // Threads without a key read the last one's values, and take none of them.
  const uint near = clamp(key, from, keys - 1), row = near < line ? near : numbers[others + near - line];
  own_place = (numbers[pages + row / PAGE] * c.block_rows + kv_head * c.head_rows + row % PAGE) * row_words(DIM);
  rows[thread] = c.v_first + own_place;
}

// A block's largest score, and its sums of powers and of values; each thread of the first slice
// has its pair.
float largest, total;
vec2 values;

void do_block(uint keys, uint first) {
  const uint thread = gl_LocalInvocationID.x;
  float score = uintBitsToFloat(0xFF800000u);
  if (is_seen) {
    score = key_dot(c.k_first + own_place) * c.scale;
    if (HAS_SOFTCAP) score = c.softcap * tanh_of(score / c.softcap);
  }
  const uint pair = thread % PAIRS, slice = thread / PAIRS, end = min(BLOCK, keys - first);
  // Eight values are on their way at a time, the first of them while the scores are summed up.
  vec2 read[8];
  largest = sum_and_largest(0, 0.0, score).y;
  if (slice < SLICES) read_values(read, slice, pair);
  const float power = is_seen ? exp(score - largest) : 0.0;
  scores[thread] = power;
  total = sum_and_largest(1, power, 0.0).x;
  if (slice < SLICES) {
    vec2 sum = vec2(0.0);
    for (uint n = slice; n < end; n += SLICES * 8) {
      const vec2 now[8] = read;
      if (n + SLICES * 8 < end) read_values(read, n + SLICES * 8, pair);
      [[unroll]] for (uint i = 0; i < 8; ++i)
        sum += n + i * SLICES < BLOCK ? scores[n + i * SLICES] * now[i] : vec2(0.0);
    }
    parts[slice][pair] = sum;
  }
  barrier();
  values = vec2(0.0);
  if (thread < PAIRS) {
    for (uint s = 0; s < SLICES; ++s) values += parts[s][thread];
  }
}

void main() {
  const uint head = gl_WorkGroupID.x % c.heads, split = gl_WorkGroupID.x / c.heads;
  const uint token = gl_WorkGroupID.y, thread = gl_LocalInvocationID.x;
  const uint numbers_at = c.step_first + token * 4, kv_head = head / c.heads_per_kv;
  const uint keys = numbers[numbers_at + 1] + numbers[numbers_at + 3];
  const uint from = c.window > 0 && keys > c.window ? keys - c.window : 0;
  const uint at = token * c.heads + head;
  uint first = IS_SPLIT ? split * BLOCK : from / BLOCK * BLOCK;
  const bool has_keys = !IS_SPLIT || (first < keys && first + BLOCK > from);
  if (has_keys) find_own(token, kv_head, first);
  if (has_keys) {
    for (uint i = thread; i < DIM; i += 256) query[i] = q[c.q_first + at * DIM + i];
    barrier();
    do_block(keys, first);
  }
  if (IS_SPLIT) {
    const uint to = c.y_first + (at * c.splits + split) * (DIM + 2);
    if (has_keys && thread < PAIRS) {
      y[to + 2 + 2 * thread] = values.x;
      y[to + 3 + 2 * thread] = values.y;
    }
    if (has_keys && thread == 0) {
      y[to] = largest;
      y[to + 1] = total;
    }
  } else {
    Joined joined = join(nothing_joined(), largest, total, values);
    for (first += BLOCK; first < keys; first += BLOCK) {
      find_own(token, kv_head, first);
      do_block(keys, first);
      joined = join(joined, largest, total, values);
    }
    if (thread < PAIRS) {
      y[c.y_first + at * DIM + 2 * thread] = joined.values.x / joined.total;
      y[c.y_first + at * DIM + 2 * thread + 1] = joined.values.y / joined.total;
    }
  }
}
