// Attention of one token, with what stands before it: norms of heads, rotation, and the token's rows of
// the caches, which are halves. A workgroup for each head and block of 256 keys; attention_join puts
// several together. Sums and roundings are those of heads.comp and attention.comp.
//
// What does not depend on the layer before is read while that is at work: the keys and values of all
// earlier tokens. The own ones are taken from where they were made.
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const uint KIND = 1;
layout(constant_id = 1) const bool HAS_SOFTCAP = false;
layout(constant_id = 2) const uint DIM = 64;  // of a head; a multiple of 8
layout(constant_id = 3) const bool IS_SPLIT = false;
layout(constant_id = 4) const bool HAS_NORMS = false;
layout(constant_id = 5) const bool HAS_ROPE = true;

#include "turns.glsl"

layout(binding = 0) IN_TURNS readonly buffer X { uint x[]; };  // a query, a key and a value of each head
layout(binding = 1) buffer K { uint k[]; };
layout(binding = 1) readonly buffer K4 { uvec4 k4[]; };
layout(binding = 2) buffer V { uint v[]; };
layout(binding = 3) readonly buffer Step { uint numbers[]; };  // as in attention.comp
layout(binding = 4) IN_TURNS writeonly buffer Y { uint y[]; };  // the result, or what is joined
layout(binding = 5) readonly buffer Table { float table[]; };    // [cos, sin]
layout(binding = 6) readonly buffer Norms { float norms[]; };

layout(push_constant) uniform Constants {
  uint heads, heads_per_kv, splits, head_rows, block_rows, window, rotary;
  uint q_first, k_first, v_first, keys_first, values_first;
  uint table_first, q_norm, k_norm, step_first, y_first;
  float scale, softcap, eps;
} c;

#include "common.glsl"
#include "activations.glsl"
#include "row_sums.glsl"

const uint BLOCK = 256, PAGE = 64, ROW_WORDS = DIM / 2;
const uint PAIRS = DIM / 2, SLICES = 256 / PAIRS;  // a thread has two numbers of some values
// Of how many keys a thread's values are on their way at once.
const uint VALUES = 16;
shared float row[3 * DIM];                         // the token's query, key and value
shared float squares[3 * 64];
shared uvec4 own_row4[2][DIM / 8];  // its key and value as halves
shared float scores[BLOCK];
shared uint places[BLOCK];
shared vec2 parts[SLICES][PAIRS];

#include "head_row.glsl"

uint place_of(uint key, uint kv_head) {
  const uint pages = c.step_first + numbers[c.step_first];
  return (numbers[pages + key / PAGE] * c.block_rows + kv_head * c.head_rows + key % PAGE) * ROW_WORDS;
}

const uint OWN = (DIM + 63) / 64;  // numbers of a thread
uint own_row[OWN];

void look_at_row(uint from, uint lane) {
  [[unroll]] for (uint i = 0; i < OWN; ++i) own_row[i] = x[from + min(lane + i * 64, DIM - 1)];
}

bool is_row_there() {
  bool all_there = true;
  [[unroll]] for (uint i = 0; i < OWN; ++i) all_there = all_there && is_there(own_row[i]);
  return all_there;
}

// The token's row: 64 threads each for query, key and value.
void make_rows(uint head, uint kv_head, vec2 turned[2]) {
  const uint which = gl_LocalInvocationID.x / 64, lane = gl_LocalInvocationID.x % 64;
  const uint from = which == 0 ? c.q_first + head * DIM : (which == 1 ? c.k_first : c.v_first) + kv_head * DIM;
  if (which < 3) {
    AWAIT(look_at_row(from, lane), is_row_there())
    [[unroll]] for (uint i = 0; i < OWN; ++i) {
      if (lane + i * 64 < DIM) row[which * DIM + lane + i * 64] = uintBitsToFloat(own_row[i]);
    }
  }
  barrier();
  if (HAS_NORMS)
    norm_row(which < 2, which * DIM, which * 64, lane, DIM, which == 0 ? c.q_norm : c.k_norm, c.eps);
  if (HAS_ROPE && which < 2) {
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      const uint at = lane + i * 64;
      if (at < c.rotary / 2) rotate(which * DIM + at, c.rotary / 2, turned[i].x, turned[i].y);
    }
  }
  barrier();
}

// The key and the value as they lie in the caches; one of the heads that share them writes them there.
void keep_rows(uint place, bool is_writer) {
  const uint which = gl_LocalInvocationID.x / 64, lane = gl_LocalInvocationID.x % 64;
  if (which == 1 || which == 2) {
    for (uint i = lane; i < DIM / 2; i += 64) {
      const uint at = which * DIM + 2 * i, word = float_to_half(row[at]) | float_to_half(row[at + 1]) << 16;
      own_row4[which - 1][i / 4][i % 4] = word;
      if (is_writer && which == 1) k[c.keys_first + place + i] = word;
      if (is_writer && which == 2) v[c.values_first + place + i] = word;
    }
  }
  barrier();
}

uvec4 own_keys[DIM / 8];  // of a thread

float key_dot() {
  float sum = 0.0;
  [[unroll]] for (uint i = 0; i < DIM / 8; ++i) {
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const vec2 pair = unpackHalf2x16(own_keys[i][j]);
      sum += row[8 * i + 2 * j] * pair.x + row[8 * i + 2 * j + 1] * pair.y;
    }
  }
  return sum;
}

void read_values(out uint read[VALUES], uint n, uint pair) {
  [[unroll]] for (uint i = 0; i < VALUES; ++i)
    read[i] = v[c.values_first + places[min(n + i * SLICES, BLOCK - 1)] + pair];
}

void main() {
  const uint head = gl_WorkGroupID.x % c.heads, split = gl_WorkGroupID.x / c.heads;
  const uint thread = gl_LocalInvocationID.x, kv_head = head / c.heads_per_kv;
  const uint keys = numbers[c.step_first + 1], newest = keys - 1;  // the token's own one
  const uint from = c.window > 0 && keys > c.window ? keys - c.window : 0;
  const uint first = split * BLOCK, key = first + thread, end = min(BLOCK, keys - min(first, keys));
  const bool has_keys = first < keys && first + BLOCK > from, is_seen = key >= from && key < keys;
  const uint pair = thread % PAIRS, slice = thread / PAIRS;
  const bool has_newest = has_keys && newest - first < BLOCK;
  vec2 turned[2];
  uint read[VALUES];
  uint newest_place = 0;
  if (has_keys) {
    // Threads without a key read the last earlier one's values, and take none of them.
    const uint earlier = newest > 0 ? newest - 1 : 0;
    const uint place = place_of(clamp(key, min(from, earlier), earlier), kv_head);
    places[thread] = place;
    newest_place = place_of(newest, kv_head);
    if (is_seen && key < newest) {
      [[unroll]] for (uint i = 0; i < DIM / 8; ++i) own_keys[i] = k4[(c.keys_first + place) / 4 + i];
    }
    if (HAS_ROPE) {
      [[unroll]] for (uint i = 0; i < 2; ++i) {
        const uint at = c.table_first + min(thread % 64 + i * 64, c.rotary / 2 - 1);
        turned[i] = vec2(table[at], table[at + c.rotary / 2]);
      }
    }
    barrier();
    if (slice < SLICES) read_values(read, slice, pair);
  }
  if (has_keys) {
    make_rows(head, kv_head, turned);
    keep_rows(newest_place, has_newest && head % c.heads_per_kv == 0);
    float score = uintBitsToFloat(0xFF800000u);
    if (is_seen) {
      if (key == newest) {
        [[unroll]] for (uint i = 0; i < DIM / 8; ++i) own_keys[i] = own_row4[0][i];
      }
      score = key_dot() * c.scale;
      if (HAS_SOFTCAP) score = c.softcap * tanh_of(score / c.softcap);
    }
    const float largest = sum_and_largest(0, 0.0, score).y;
    const float power = is_seen ? exp(score - largest) : 0.0;
    scores[thread] = power;
    const float total = sum_and_largest(1, power, 0.0).x;
    if (slice < SLICES) {
      vec2 sum = vec2(0.0);
      for (uint n = slice; n < end; n += SLICES * VALUES) {
        const uint now[VALUES] = read;
        if (n + SLICES * VALUES < end) read_values(read, n + SLICES * VALUES, pair);
        [[unroll]] for (uint i = 0; i < VALUES; ++i) {
          const uint at = n + i * SLICES;
          const vec2 value = unpackHalf2x16(first + at == newest ? own_row4[1][pair / 4][pair % 4] : now[i]);
          sum += at < end ? scores[at] * value : vec2(0.0);
        }
      }
      parts[slice][pair] = sum;
    }
    barrier();
    if (thread < PAIRS) {
      vec2 values = vec2(0.0);
      for (uint s = 0; s < SLICES; ++s) values += parts[s][thread];
      const uint to = IS_SPLIT ? c.y_first + (head * c.splits + split) * (DIM + 2) + 2 : c.y_first + head * DIM;
      if (!IS_SPLIT) values /= total;
      y[to + 2 * thread] = given(values.x);
      y[to + 2 * thread + 1] = given(values.y);
      if (IS_SPLIT && thread == 0) {
        y[to - 2] = given(largest);
        y[to - 1] = given(total);
      }
    }
  }
}
