// Attention over the rows of caches: a workgroup for each head of each token, which goes through
// its keys in blocks of 64.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;

layout(constant_id = 1) const bool HAS_SOFTCAP = false;

layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer K { uint k[]; };
layout(binding = 2) readonly buffer V { uint v[]; };
// Of each token four numbers, then lists: where its pages begin, how many keys it sees one after
// the other, and where the rows that it sees behind them begin, and their number.
layout(binding = 3) readonly buffer Step { uint numbers[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };

layout(push_constant) uniform Constants {
  uint heads, heads_per_kv, dim, head_rows, block_rows, window;
  uint q_first, k_first, v_first, step_first, y_first;
  float scale, softcap;
} c;

#include "common.glsl"
#include "activations.glsl"
#include "cache.glsl"

const uint BLOCK = 64, MOST_DIM = 512;
shared float query[MOST_DIM];
shared float scores[BLOCK];
shared float parts[BLOCK];
shared uint rows[BLOCK];

float key_dot(uint at) {
  float sum = 0.0;
  if (KIND == FLOATS) {
    for (uint i = 0; i < c.dim; ++i) sum += query[i] * uintBitsToFloat(k[at + i]);
  } else if (KIND == HALVES) {
    for (uint i = 0; i < c.dim / 2; ++i) {
      const uint word = k[at + i];
      sum += query[2 * i] * half_of(word, 0) + query[2 * i + 1] * half_of(word, 1);
    }
  } else {
    const float scale = uintBitsToFloat(k[at + c.dim / 4]);
    const float zero = uintBitsToFloat(k[at + c.dim / 4 + 1]);
    for (uint i = 0; i < c.dim; ++i)
      sum += query[i] * (float(k[at + i / 4] >> 8 * (i % 4) & 255u) * scale + zero);
  }
  return sum;
}

float value_at(uint at, uint i) {
  if (KIND == FLOATS) return uintBitsToFloat(v[at + i]);
  if (KIND == HALVES) return half_of(v[at + i / 2], i % 2);
  return float(v[at + i / 4] >> 8 * (i % 4) & 255u) * uintBitsToFloat(v[at + c.dim / 4]) +
         uintBitsToFloat(v[at + c.dim / 4 + 1]);
}

void main() {
  const uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y, thread = gl_LocalInvocationID.x;
  const uint own = c.step_first + token * 4;
  const uint pages = c.step_first + numbers[own], line = numbers[own + 1];
  const uint others = c.step_first + numbers[own + 2], keys = line + numbers[own + 3];
  const uint from = c.window > 0 && keys > c.window ? keys - c.window : 0;
  const uint words = row_words(c.dim), kv_head = head / c.heads_per_kv;
  const uint at = (token * c.heads + head) * c.dim;
  for (uint i = thread; i < c.dim; i += BLOCK) query[i] = q[c.q_first + at + i];
  float result[MOST_DIM / BLOCK];
  for (uint j = 0; j < MOST_DIM / BLOCK; ++j) result[j] = 0.0;
  float largest = uintBitsToFloat(0xFF800000u), total = 0.0;
  // Blocks begin where those of all tokens do, so that a token has the same sums in any step.
  for (uint first = from / BLOCK * BLOCK; first < keys; first += BLOCK) {
    barrier();
    const uint key = first + thread;
    const bool seen = key >= from && key < keys;
    float score = uintBitsToFloat(0xFF800000u);
    if (seen) {
      const uint row = key < line ? key : numbers[others + key - line];
      const uint place =
          numbers[pages + row / BLOCK] * c.block_rows + kv_head * c.head_rows + row % BLOCK;
      rows[thread] = place * words;
      score = key_dot(c.k_first + place * words) * c.scale;
      if (HAS_SOFTCAP) score = c.softcap * tanh_of(score / c.softcap);
    }
    scores[thread] = score;
    parts[thread] = score;
    for (uint half_size = BLOCK / 2; half_size > 0; half_size /= 2) {
      barrier();
      if (thread < half_size) parts[thread] = max(parts[thread], parts[thread + half_size]);
    }
    barrier();
    const float new_largest = max(largest, parts[0]);
    barrier();
    const float power = seen ? exp(score - new_largest) : 0.0;
    scores[thread] = power;
    parts[thread] = power;
    for (uint half_size = BLOCK / 2; half_size > 0; half_size /= 2) {
      barrier();
      if (thread < half_size) parts[thread] += parts[thread + half_size];
    }
    barrier();
    const float correction = exp(largest - new_largest);
    largest = new_largest;
    total = total * correction + parts[0];
    const uint begin = from > first ? from - first : 0, end = min(BLOCK, keys - first);
    for (uint j = 0; j < MOST_DIM / BLOCK; ++j) {
      const uint i = j * BLOCK + thread;
      if (i >= c.dim) break;
      float sum = result[j] * correction;
      for (uint n = begin; n < end; ++n) sum += scores[n] * value_at(c.v_first + rows[n], i);
      result[j] = sum;
    }
  }
  for (uint j = 0; j < MOST_DIM / BLOCK; ++j) {
    const uint i = j * BLOCK + thread;
    if (i < c.dim) y[c.y_first + at + i] = result[j] / total;
  }
}
