// attention_full, attention_qkv and qattention_qkv: all queries over all keys, in floats or in codes; a
// workgroup for each head of each query.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const bool IS_BYTES = false;
layout(constant_id = 1) const bool TO_CODES = false;
layout(constant_id = 2) const bool HAS_BIAS = false;
layout(constant_id = 3) const bool HAS_ROWS = false;
layout(constant_id = 4) const bool HAS_KINDS = false;

layout(binding = 0) readonly buffer Q { uint q[]; };
layout(binding = 1) readonly buffer K { uint k[]; };
layout(binding = 2) readonly buffer V { uint v[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };  // [kinds][bias_heads][bias_rows][keys]
layout(binding = 4) readonly buffer Rows { int rows[]; };    // [entries][tokens]
layout(binding = 5) readonly buffer Kinds { int kinds[]; };  // which bias an entry has
layout(binding = 6) readonly buffer Scales { float scales[]; };  // of codes: [3][heads]
layout(binding = 7) writeonly buffer Y { uint y[]; };

// Steps are elements from a token to the next.
layout(push_constant) uniform Constants {
  uint tokens, keys, heads, size, v_size, q_step, k_step, v_step;
  uint bias_count, bias_heads, bias_rows, kind_count;
  uint q_first, k_first, v_first, bias_first, rows_first, kinds_first, scales_first, y_first;
  uint k_offset, v_offset;  // elements
  float scale, inverse_out_scale;
  int out_zero;
} c;

#include "common.glsl"
#include "activations.glsl"
#include "codes.glsl"

const uint MOST_KEYS = 2048, MOST_SIZE = 256;
shared float query[MOST_SIZE];
shared float scores[MOST_KEYS];  // then powers
shared float parts[256];
shared int whole_parts[256];

uint row_of(uint entry, uint token, uint tokens) {
  const uint number = entry * tokens + token;
  return HAS_ROWS ? uint(rows[c.rows_first + number]) : number;
}

// Codes are numbers from -128 on.
float number_of(uint word, uint at) {
  return IS_BYTES ? float(int(byte_of(word, at % 4)) - 128) : uintBitsToFloat(word);
}
uint word_at(uint at) { return IS_BYTES ? at / 4 : at; }

float joined(float own, bool sums) {
  const uint thread = gl_LocalInvocationID.x;
  barrier();
  parts[thread] = own;
  for (uint half_size = 128; half_size > 0; half_size /= 2) {
    barrier();
    if (thread < half_size) {
      const float other = parts[thread + half_size];
      if (sums)
        parts[thread] += other;
      else if (other > parts[thread] || is_no_number(other))
        parts[thread] = other;
    }
  }
  barrier();
  return parts[0];
}

void main() {
  const uint thread = gl_LocalInvocationID.x, token = gl_WorkGroupID.x;
  const uint entry = gl_WorkGroupID.y / c.heads, head = gl_WorkGroupID.y % c.heads;
  const uint own_row = row_of(entry, token, c.tokens);
  for (uint i = thread; i < c.size; i += 256) {
    const uint at = own_row * c.q_step + head * c.size + i;
    query[i] = number_of(q[c.q_first + word_at(at)], at);
  }
  barrier();
  float scale = c.scale;
  if (IS_BYTES) scale *= scales[c.scales_first + head] * scales[c.scales_first + c.heads + head];
  const uint kind = HAS_KINDS ? uint(kinds[c.kinds_first + entry % c.kind_count]) : entry % c.bias_count;
  const uint bias_row = c.bias_first + ((kind * c.bias_heads + (c.bias_heads == 1 ? 0 : head)) * c.bias_rows +
                                        (c.bias_rows == 1 ? 0 : token)) * c.keys;
  const float none = uintBitsToFloat(0xFF800000u);
  float most = none;
  for (uint key = thread; key < c.keys; key += 256) {
    const uint at = c.k_offset + row_of(entry, key, c.keys) * c.k_step + head * c.size;
    float score = 0.0;
    for (uint i = 0; i < c.size; ++i) 
      score = fma(query[i], number_of(k[c.k_first + word_at(at + i)], at + i), score);
    score *= scale;
    if (HAS_BIAS) score += bias[bias_row + key];
    scores[key] = score;
    if (score > most || is_no_number(score)) most = score;
  }
  most = joined(most, false);
  const bool sees = !(most == none);
  const float centre = sees ? most : 0.0;
  float total = 0.0;
  for (uint key = thread; key < c.keys; key += 256) {
    const float power = exp_of(scores[key] - centre);
    scores[key] = IS_BYTES ? roundEven(255.0 * power) : power;
    total += scores[key];
  }
  total = joined(total, true);
  barrier();
  // Threads have a number of the values each, and some keys.
  uint width = 4;
  while (width < c.v_size) width *= 2;
  const uint slices = 256 / width, column = thread % width, slice = thread / width;
  float sum = 0.0;
  int whole = 0;
  if (column < c.v_size) {
    for (uint key = slice; key < c.keys; key += slices) {
      const uint at = c.v_offset + row_of(entry, key, c.keys) * c.v_step + head * c.v_size + column;
      const float value = number_of(v[c.v_first + word_at(at)], at);
      if (IS_BYTES)
        whole += int(scores[key]) * int(value);
      else
        sum = fma(scores[key], value, sum);
    }
  }
  parts[thread] = sum;
  whole_parts[thread] = whole;
  barrier();
  const uint to = (own_row * c.heads + head) * c.v_size;
  float result = 0.0;
  if (thread < c.v_size) {
    whole = 0;
    for (uint s = 0; s < slices; ++s) {
      whole += whole_parts[s * width + thread];
      result += parts[s * width + thread];
    }
    if (IS_BYTES) {
      const float by = 1.0 / max(total, 1.0);
      precise float scaled = float(whole) * scales[c.scales_first + 2 * c.heads + head];
      result = scaled * by;
    } else {
      result = sees ? result / total : 0.0;
    }
    if (!TO_CODES) y[c.y_first + to + thread] = floatBitsToUint(result);
  }
  if (!TO_CODES) return;
  barrier();
  parts[thread] = float(code_of(result * c.inverse_out_scale, c.out_zero));
  barrier();
  if (thread * 4 < c.v_size) {
    uint codes = 0;
    for (uint i = 0; i < 4; ++i) codes |= uint(parts[thread * 4 + i]) << 8 * i;
    y[c.y_first + to / 4 + thread] = codes;
  }
}
