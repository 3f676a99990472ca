// y = x * wT + bias for few tokens, with activations in signed bytes: TILES tiles of 16 rows of w for
// each workgroup. A thread has four rows of each and 32 columns at a time, and so reads whole 16-byte
// words.
//
// Up to three matrices of the same columns are done together. For one token the row is normed and
// rounded here, by each workgroup for itself: that is cheaper than waiting for another dispatch.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;

layout(constant_id = 1) const uint ACTIVATION = 0;
layout(constant_id = 2) const uint TOKENS = 1;    // of a workgroup
layout(constant_id = 3) const uint PROLOGUE = 0;  // x is 0: bytes, 1: floats, 2: floats to be normed
layout(constant_id = 4) const bool HAS_BIAS = false;
layout(constant_id = 5) const bool HAS_RESIDUAL = false;
layout(constant_id = 6) const uint PRODUCT = 0;  // of two matrices' results; 0: none, else an op
layout(constant_id = 7) const uint X_WORDS = 1;  // of a row, where it is rounded here
layout(constant_id = 8) const uint DIGITS = 1;   // of x: codes of 8 bits, or two of 16
layout(constant_id = 9) const uint LARGEST = 127;
layout(constant_id = 11) const uint TILES = 1;
const bool HAS_NORM = PROLOGUE == 2;

layout(binding = 0) readonly buffer Weights { uint w[]; };
layout(binding = 0) readonly buffer Weights4 { uvec4 w4[]; };
layout(binding = 1) readonly buffer X { uint x[]; };
layout(binding = 2) readonly buffer Aux { float aux[]; };  // a norm's weights, or tokens' scales
layout(binding = 3) readonly buffer Residual { float residual[]; };
layout(binding = 4) buffer Y { float y[]; };

struct Matrix {
  uint codes, scales, second, bias, y, rows;
};
layout(push_constant) uniform Constants {
  uint cols, tokens, x_first, aux_first, residual_first;
  float eps;
  uint groups_0, groups_1;  // workgroups of the first matrix, and of the first two
  Matrix matrices[3];
} c;

#include "common.glsl"
#include "activations.glsl"
#include "encodings.glsl"
#include "dot.glsl"
#include "row_sums.glsl"
#include "quantized_row.glsl"

const uint SILU_MUL = 1, GELU_TANH_MUL = 2;
const uint CHUNK = 32;     // columns
const uint TOGETHER = 64;  // chunks that a workgroup does at once
const uint OWN_WORDS = (X_WORDS + 255) / 256;  // of a row that is rounded here, of a thread

shared uint x_words[DIGITS][X_WORDS];
// Of two results in turn, so that nobody need wait to write the next.
shared vec4 partial[2][TILES][256];
shared float sums[2][TILES * 16][17];

float x_scale[TOKENS];

void round_row() {
  const uint thread = gl_LocalInvocationID.x;
  vec4 numbers[OWN_WORDS];
  float squares = 0.0, largest = 0.0;
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) {
    const uint word = i * 256 + thread, at = c.x_first + word * 4;
    numbers[i] = vec4(0.0);
    if (word >= X_WORDS) continue;
    numbers[i] = uintBitsToFloat(uvec4(x[at], x[at + 1], x[at + 2], x[at + 3]));
    squares += squares_of(numbers[i]);
    if (HAS_NORM) {
      const uint from = c.aux_first + word * 4;
      numbers[i] *= vec4(aux[from], aux[from + 1], aux[from + 2], aux[from + 3]);
    }
    largest = max(largest, largest_of(abs(numbers[i])));
  }
  const vec2 all = sum_and_largest(0, squares, largest);
  const RowScale row = row_scale(all.x, all.y);
  x_scale[0] = row.scale;
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) {
    const uint word = i * 256 + thread;
    if (word >= X_WORDS) continue;
    const ivec4 code = ivec4(roundEven(numbers[i] * row.inverse));
    x_words[0][word] = bytes_of(DIGITS == 2 ? high_digits(code) : code);
    if (DIGITS == 2) x_words[DIGITS - 1][word] = bytes_of(code);
  }
  barrier();
}

uint x_word(uint token, uint digit, uint word) {
  if (PROLOGUE > 0) return x_words[digit][word];
  return x[c.x_first + (token * DIGITS + digit) * (c.cols / 4) + word];
}

ivec4 dots(uvec4 rows, uint word) {
  return ivec4(dot4(rows.x, word), dot4(rows.y, word), dot4(rows.z, word), dot4(rows.w, word));
}

const uint UNITS = EIGHT_BITS ? 8u : 4u;
const bool NEEDS_SUMS = NIBBLES_ZERO != 0 || HAS_OFFSETS;

// Of four rows of each tile, the sums over a thread's columns.
void add_chunks(Matrix m, uint tile, uint first, out vec4 total[TILES][TOKENS]) {
  const uint quad = gl_LocalInvocationID.x % 4, last = (m.rows - 1) / 16;
  [[unroll]] for (uint r = 0; r < TILES; ++r) {
    [[unroll]] for (uint t = 0; t < TOKENS; ++t) total[r][t] = vec4(0.0);
  }
  for (uint chunk = gl_LocalInvocationID.x / 4; chunk < c.cols / CHUNK; chunk += TOGETHER) {
    uvec4 codes[TILES][UNITS];
    [[unroll]] for (uint r = 0; r < TILES; ++r) {
      const uint at = m.codes / 4 + (min(tile + r, last) * (c.cols / CHUNK) + chunk) * UNITS * 4 + quad;
      [[unroll]] for (uint u = 0; u < UNITS; ++u) codes[r][u] = w4[at + u * 4];
    }
    [[unroll]] for (uint t = 0; t < TOKENS; ++t) {
      const uint token = min(first + t, c.tokens - 1);
      ivec4 sum[TILES];
      [[unroll]] for (uint r = 0; r < TILES; ++r) sum[r] = ivec4(0);
      int all = 0;
      [[unroll]] for (uint digit = 0; digit < DIGITS; ++digit) {
        all *= 256;
        [[unroll]] for (uint r = 0; r < TILES; ++r) sum[r] *= 256;
        [[unroll]] for (uint u = 0; u < 8; ++u) {
          const uint word = x_word(token, digit, chunk * 8 + u);
          if (NEEDS_SUMS) all += dot4(word, 0x01010101u);
          [[unroll]] for (uint r = 0; r < TILES; ++r) {
            if (EIGHT_BITS)
              sum[r] += dots(codes[r][u % UNITS] ^ 0x80808080u, word);
            else if (u % 2 == 0)
              sum[r] += dots(codes[r][u / 2] & 0x0F0F0F0Fu, word);
            else
              sum[r] += dots(codes[r][u / 2] >> 4 & 0x0F0F0F0Fu, word);
          }
        }
      }
      [[unroll]] for (uint r = 0; r < TILES; ++r) {
        vec4 scale, offset;
        read_scales(m, min(tile + r, last), chunk, quad, scale, offset);
        total[r][t] = fma(vec4(sum[r] - NIBBLES_ZERO * all), scale, total[r][t]);
        if (HAS_OFFSETS) total[r][t] = fma(vec4(float(all)), offset, total[r][t]);
      }
    }
  }
}

// What the first 16 * TILES threads get is the result of their row.
float add_up(uint slot, vec4 own[TILES]) {
  const uint thread = gl_LocalInvocationID.x, rows = TILES * 16, slices = 256 / rows;
  [[unroll]] for (uint r = 0; r < TILES; ++r) partial[slot][r][thread] = own[r];
  barrier();
  // A tile's sums are added up in the same order however many tiles there are.
  const uint row = thread % rows, slice = thread / rows;
  [[unroll]] for (uint s = 0; s < 16 / slices; ++s) {
    const uint part = slice * (16 / slices) + s;
    float sum = 0.0;
    for (uint i = 0; i < 4; ++i) sum += partial[slot][row / 16][(part * 4 + i) * 4 + row % 16 / 4][row % 4];
    sums[slot][row][part] = sum;
  }
  barrier();
  float result = 0.0;
  if (thread < rows) {
    for (uint i = 0; i < 16; ++i) result += sums[slot][thread][i];
  }
  return result;
}

float finished(Matrix m, uint row, float sum, float scale) {
  precise float result = sum * row_factor(m, row / 16, row % 16) * scale;
  if (HAS_BIAS) result += uintBitsToFloat(w[m.bias + row]);
  return activated(ACTIVATION, result);
}

void main() {
  const uint group = gl_WorkGroupID.x, first = gl_WorkGroupID.y * TOKENS;
  const uint which = PRODUCT > 0 ? 0u : uint(group >= c.groups_0) + uint(group >= c.groups_1);
  const Matrix m = c.matrices[which];
  const uint tile = (group - (which == 0 ? 0 : which == 1 ? c.groups_0 : c.groups_1)) * TILES;
  if (PROLOGUE > 0) {
    round_row();
  } else {
    for (uint t = 0; t < TOKENS; ++t) x_scale[t] = aux[c.aux_first + min(first + t, c.tokens - 1)];
  }
  vec4 total[TILES][TOKENS], other[TILES][TOKENS];
  add_chunks(m, tile, first, total);
  if (PRODUCT > 0) add_chunks(c.matrices[1], tile, first, other);
  const uint row = tile * 16 + gl_LocalInvocationID.x;
  const bool has_row = gl_LocalInvocationID.x < TILES * 16 && row < m.rows;
  [[unroll]] for (uint t = 0; t < TOKENS; ++t) {
    vec4 own[TILES];
    [[unroll]] for (uint r = 0; r < TILES; ++r) own[r] = total[r][t];
    float result = add_up(PRODUCT > 0 ? 0 : t % 2, own), right = 0.0;
    if (PRODUCT > 0) {
      [[unroll]] for (uint r = 0; r < TILES; ++r) own[r] = other[r][t];
      right = add_up(1, own);
    }
    if (!has_row || first + t >= c.tokens) continue;
    result = finished(m, row, result, x_scale[t]);
    if (PRODUCT > 0) {
      right = finished(c.matrices[1], row, right, x_scale[t]);
      result = (PRODUCT == SILU_MUL ? result * sigmoid_of(result) : gelu_tanh_of(result)) * right;
    }
    const uint at = (first + t) * m.rows + row;
    precise float sum = result;
    if (HAS_RESIDUAL) sum = residual[c.residual_first + at] + result;
    y[m.y + at] = sum;
  }
}
