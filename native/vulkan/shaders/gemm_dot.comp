// y = x * wT for many tokens, by dot products of four bytes: BM tokens and BN rows of w for each workgroup,
// BK columns at a time, of which a thread has some tokens and four rows. Weights become bytes once for all
// of a workgroup's tokens, on their way to shared memory; while one step is multiplied, the words of the
// next are fetched.
//
// Results have the same bits as those of linear_few.comp. There a chunk of 32 columns belongs to one of 64
// threads, each of which has the chunks that are 64 apart; sums of four threads are added up, and then
// those of the 16 fours. So chunks are taken here in the order of those threads: all of the first, then
// all of the second.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x_id = 7) in;

layout(constant_id = 1) const uint ACTIVATION = 0;
layout(constant_id = 2) const uint BM = 64;
layout(constant_id = 3) const uint BN = 64;
layout(constant_id = 4) const bool HAS_BIAS = false;
layout(constant_id = 5) const bool HAS_RESIDUAL = false;
layout(constant_id = 6) const uint DIGITS = 1;  // of x: codes of 8 bits, or the two bytes of 16
layout(constant_id = 7) const uint THREADS = 256;
layout(constant_id = 9) const uint BK = 64;  // at most 128
// There are more than 64 chunks, so that some of them are 64 apart.
layout(constant_id = 11) const bool IS_LONG = false;

layout(binding = 0) readonly buffer Weights { uint w[]; };
layout(binding = 0) readonly buffer Weights4 { uvec4 w4[]; };
layout(binding = 1) readonly buffer X { uvec4 x[]; };  // [tokens][DIGITS][cols] bytes
layout(binding = 2) readonly buffer Scales { float x_scales[]; };
layout(binding = 3) readonly buffer Residual { float residual[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };
layout(binding = 4) writeonly buffer Y4 { vec4 y4[]; };

struct Matrix {
  uint codes, scales, second, bias, y, rows;
};
layout(push_constant) uniform Constants {
  uint cols, tokens, x_first, aux_first, residual_first;
  uint blocks_0, blocks_1;  // of BN rows: of the first matrix, and of the first two
  Matrix matrices[3];
} c;

#include "common.glsl"
#include "activations.glsl"
#include "encodings.glsl"
#include "dot.glsl"

const uint APART = 64;           // chunks of one sum
const uint CHUNKS = BK / 32;     // of a step
const uint QUADS = BN / 4;       // of rows
const uint ACROSS = BN / 32;     // of 32 threads, 8 lie along the rows, and so many of those
const uint TOKENS = BM * QUADS / THREADS, DOWN = BM / TOKENS;  // of a thread, so far apart
const uint UNITS = EIGHT_BITS ? 8 : 4;                         // words of a chunk's row
const uint X_ROW = BK / 16, X_STRIDE = X_ROW + 1;  // in 16 bytes: four tokens lie in other banks
const uint W_STRIDE = QUADS + 2;  // and so do a quad's units
const uint X_WORDS = BM * DIGITS * X_ROW, OWN_X = (X_WORDS + THREADS - 1) / THREADS;
const uint W_WORDS = BN / 4 * CHUNKS * UNITS, OWN_W = (W_WORDS + THREADS - 1) / THREADS;
const uint SCALES = CHUNKS * QUADS, OWN_SCALES = (SCALES + THREADS - 1) / THREADS;

shared uvec4 x_tile[DIGITS * BM * X_STRIDE];  // of a token, 16 columns
shared uvec4 w_tile[BK / 4 * W_STRIDE];       // of four rows, four columns
shared vec4 scales[SCALES];
shared vec4 offsets[HAS_OFFSETS ? SCALES : 1];

ivec4 dots(uvec4 rows, uint word) {
  return ivec4(dot4(rows.x, word), dot4(rows.y, word), dot4(rows.z, word), dot4(rows.w, word));
}

uvec4 signed_bytes(uvec4 nibbles) {
  nibbles &= 0x0F0F0F0Fu;
  return CODES_ZERO == 0 ? nibbles : (nibbles | 0x80808080u) - 0x08080808u ^ 0x80808080u;
}

// The chunk behind another one, in the order of sums.
uint after(uint chunk, uint count) { return chunk + APART < count ? chunk + APART : chunk % APART + 1; }

float finished(Matrix m, uint row, float sum, float scale) {
  precise float result = sum * row_factor(m, row / 16, row % 16) * scale;
  if (HAS_BIAS) result += uintBitsToFloat(w[m.bias + row]);
  return activated(ACTIVATION, result);
}

void main() {
  const uint block = gl_WorkGroupID.x, first_token = gl_WorkGroupID.y * BM;
  const uint which = uint(block >= c.blocks_0) + uint(block >= c.blocks_1);
  const Matrix m = c.matrices[which];
  const uint first_row = (block - (which == 0 ? 0 : which == 1 ? c.blocks_0 : c.blocks_1)) * BN;
  const uint thread = gl_LocalInvocationID.x, last_tile = (m.rows - 1) / 16, count = c.cols / 32;
  const uint own_quad = thread / 32 % ACROSS * 8 + thread % 8;
  const uint own_token = thread / 32 / ACROSS * 4 + thread % 32 / 8;

  // Of a thread of linear_few.comp, of four, and of all. It rounds what it adds up, and so do these.
  vec4 of_one[TOKENS];
  precise vec4 of_four[TOKENS], of_all[TOKENS];
  [[unroll]] for (uint t = 0; t < TOKENS; ++t) of_one[t] = of_four[t] = of_all[t] = vec4(0.0);

  uvec4 x_next[OWN_X], codes_next[OWN_W];
  RawScales scales_next[OWN_SCALES];
  uvec4 next = uvec4(0);  // chunks
  [[unroll]] for (uint i = 1; i < CHUNKS; ++i) next[i] = after(next[i - 1], count);
  // Behind the last chunk there are others' numbers, which nobody takes.
#define FETCH                                                                                      \
  [[unroll]] for (uint i = 0; i < OWN_X; ++i) {                                                    \
    const uint number = i * THREADS + thread, word = number % X_ROW;                               \
    const uint token = min(first_token + number / X_ROW % BM, c.tokens - 1);                       \
    const uint digit = min(number / X_ROW / BM, DIGITS - 1);                                       \
    x_next[i] = x[c.x_first + (token * DIGITS + digit) * (c.cols / 16) +                           \
                  min(next[word / 2], count - 1) * 2 + word % 2];                                  \
  }                                                                                                \
  [[unroll]] for (uint i = 0; i < OWN_W; ++i) {                                                    \
    const uint number = i * THREADS + thread, of_chunk = number % (UNITS * 4);                     \
    const uint chunk = min(next[number / (UNITS * 4) % CHUNKS], count - 1);                        \
    const uint tile = min(first_row / 16 + number / (UNITS * 4 * CHUNKS), last_tile);              \
    if (number < W_WORDS)                                                                          \
      codes_next[i] = w4[m.codes / 4 + (tile * count + chunk) * UNITS * 4 + of_chunk];             \
  }                                                                                                \
  [[unroll]] for (uint i = 0; i < OWN_SCALES; ++i) {                                               \
    const uint number = i * THREADS + thread, quad = number % QUADS;                               \
    const uint tile = min(first_row / 16 + quad / 4, last_tile);                                   \
    if (number < SCALES)                                                                           \
      scales_next[i] = raw_scales(m, tile, min(next[number / QUADS], count - 1), quad % 4);        \
  }

  FETCH
  for (uint done = 0; done < count; done += CHUNKS) {
    const uvec4 chunks = next;
    barrier();
    [[unroll]] for (uint i = 0; i < OWN_X; ++i) {
      const uint number = i * THREADS + thread;
      if (number < X_WORDS) x_tile[number / X_ROW * X_STRIDE + number % X_ROW] = x_next[i];
    }
    [[unroll]] for (uint i = 0; i < OWN_W; ++i) {
      const uint number = i * THREADS + thread, unit = number / 4 % (UNITS * CHUNKS);
      const uint quad = number / (UNITS * 4 * CHUNKS) * 4 + number % 4;
      if (number < W_WORDS) {
        if (EIGHT_BITS) {
          w_tile[unit * W_STRIDE + quad] = codes_next[i] ^ 0x80808080u;
        } else {
          w_tile[unit * 2 * W_STRIDE + quad] = signed_bytes(codes_next[i]);
          w_tile[(unit * 2 + 1) * W_STRIDE + quad] = signed_bytes(codes_next[i] >> 4);
        }
      }
    }
    [[unroll]] for (uint i = 0; i < OWN_SCALES; ++i) {
      const uint number = i * THREADS + thread;
      if (number < SCALES) {
        vec4 scale, offset;
        unpack_scales(scales_next[i], 0, scale, offset);
        scales[number] = scale;
        if (HAS_OFFSETS) offsets[number] = offset;
      }
    }
    barrier();
    next[0] = after(next[CHUNKS - 1], count);
    [[unroll]] for (uint i = 1; i < CHUNKS; ++i) next[i] = after(next[i - 1], count);
    FETCH
    for (uint g = 0; g < CHUNKS && done + g < count; ++g) {
      ivec4 sums[TOKENS];
      int bytes[TOKENS];  // their sums
      [[unroll]] for (uint t = 0; t < TOKENS; ++t) {
        sums[t] = ivec4(0);
        bytes[t] = 0;
      }
      for (uint digit = 0; digit < DIGITS; ++digit) {
        if (digit > 0) {
          [[unroll]] for (uint t = 0; t < TOKENS; ++t) {
            sums[t] *= 256;
            bytes[t] *= 256;
          }
        }
        for (uint part = 0; part < 2; ++part) {
          uvec4 words[TOKENS];
          [[unroll]] for (uint t = 0; t < TOKENS; ++t)
            words[t] = x_tile[(digit * BM + own_token + t * DOWN) * X_STRIDE + g * 2 + part];
          [[unroll]] for (uint k = 0; k < 4; ++k) {
            const uvec4 rows = w_tile[(g * 8 + part * 4 + k) * W_STRIDE + own_quad];
            [[unroll]] for (uint t = 0; t < TOKENS; ++t) {
              sums[t] += dots(rows, words[t][k]);
              if (HAS_OFFSETS) bytes[t] += dot4(words[t][k], 0x01010101u);
            }
          }
        }
      }
      const vec4 scale = scales[g * QUADS + own_quad];
      const uint chunk = chunks[g];
      const bool ends_one = !IS_LONG || chunk + APART >= count;
      [[unroll]] for (uint t = 0; t < TOKENS; ++t) {
        vec4 now = fma(vec4(sums[t]), scale, IS_LONG ? of_one[t] : vec4(0.0));
        if (HAS_OFFSETS) now = fma(vec4(float(bytes[t])), offsets[g * QUADS + own_quad], now);
        of_one[t] = now;
      }
      if (ends_one) {
        [[unroll]] for (uint t = 0; t < TOKENS; ++t) {
          of_four[t] += of_one[t];
          of_one[t] = vec4(0.0);
        }
      }
      if (ends_one && chunk % 4 == 3) {
        [[unroll]] for (uint t = 0; t < TOKENS; ++t) {
          of_all[t] += of_four[t];
          of_four[t] = vec4(0.0);
        }
      }
    }
  }
  const bool is_aligned = (m.rows | m.y) % 4 == 0;
  [[unroll]] for (uint t = 0; t < TOKENS; ++t) {
    const uint token = first_token + own_token + t * DOWN, row = first_row + own_quad * 4;
    const uint at = token * m.rows + row;
    if (token >= c.tokens || row >= m.rows) continue;
    const vec4 sums = of_all[t] + of_four[t];
    vec4 results;
    [[unroll]] for (uint r = 0; r < 4; ++r) {
      const uint in_rows = min(r, m.rows - 1 - row);
      precise float result = finished(m, row + in_rows, sums[r], x_scales[c.aux_first + token]);
      if (HAS_RESIDUAL) result = residual[c.residual_first + at + in_rows] + result;
      results[r] = result;
    }
    if (is_aligned) {
      y4[(m.y + at) / 4] = results;
    } else {
      [[unroll]] for (uint r = 0; r < 4; ++r) {
        if (row + r < m.rows) y[m.y + at + r] = results[r];
      }
    }
  }
}
