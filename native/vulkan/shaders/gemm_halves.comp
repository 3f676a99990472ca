// y = x * wT for many tokens, by cooperative matrices of halves: BM tokens and BN rows of w for each
// workgroup, 64 columns at a time. Codes of x are whole numbers that a half holds exactly; weights
// are rounded to halves, scaled so that none is too large or too small.
//
// While matrices of one step are multiplied, the words of the next are on their way.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x_id = 7) in;

layout(constant_id = 1) const uint ACTIVATION = 0;
layout(constant_id = 2) const uint BM = 64;
layout(constant_id = 3) const uint BN = 64;
layout(constant_id = 4) const bool HAS_BIAS = false;
layout(constant_id = 5) const bool HAS_RESIDUAL = false;
layout(constant_id = 6) const uint DIGITS = 1;  // of x: codes of 8 bits, or the two halves of 16
layout(constant_id = 7) const uint THREADS = 128;

layout(binding = 0) readonly buffer Weights { uint w[]; };
layout(binding = 1) readonly buffer X { uvec4 x[]; };  // [tokens][DIGITS][cols] halves
layout(binding = 2) readonly buffer Scales { float x_scales[]; };
layout(binding = 3) readonly buffer Residual { float residual[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };

struct Matrix {
  uint codes, scales, second, bias, y, rows;
};
layout(push_constant) uniform Constants {
  uint cols, tokens, x_first, aux_first, residual_first;
  uint blocks_0, blocks_1;  // of BN rows: of the first matrix, and of the first two
  float factors[3];         // what weights are multiplied with here
  Matrix matrices[3];
} c;

#include "common.glsl"
#include "activations.glsl"
#include "encodings.glsl"

const uint SUBGROUPS = THREADS / 32;
const uint ACROSS = BN / 32;               // subgroups along the rows of w: each has 32 of them
const uint DOWN = SUBGROUPS / ACROSS;      // along the tokens
const uint TOKENS = BM / DOWN, FRAGMENTS = TOKENS / 16;
const uint BK = 64, STRIDE = 36;           // of a row in shared memory, in pairs of halves
const uint X_WORDS = BM * DIGITS * 8 / THREADS, W_WORDS = BN * 8 / THREADS;  // of a thread

shared f16vec2 x_tile[DIGITS * BM * STRIDE];
shared f16vec2 w_tile[BN * STRIDE];
shared float results[SUBGROUPS][256];

// Eight weights in halves. A number below 16 (below 256) among the lowest bits of the half 1,024 makes
// it so much larger, which needs no conversion.
void weights_of(uint low, uint high, vec2 scale, out f16vec2 pairs[4]) {
  const f16vec2 by = f16vec2(scale.xx), more = f16vec2(scale.yy);
  const f16vec2 zero = f16vec2(EIGHT_BITS ? 1152.0 : 1024.0 + float(NIBBLES_ZERO));
  uvec4 bits;
  if (EIGHT_BITS) {
    bits = uvec4(low & 0xFFu | (low & 0xFF00u) << 8, low >> 16 & 0xFFu | (low & 0xFF000000u) >> 8,
                 high & 0xFFu | (high & 0xFF00u) << 8, high >> 16 & 0xFFu | (high & 0xFF000000u) >> 8);
  } else {
    const uint h = low >> 4;
    bits = uvec4(low & 0xFu | (low & 0xF00u) << 8, low >> 16 & 0xFu | (low & 0xF000000u) >> 8,
                 h & 0xFu | (h & 0xF00u) << 8, h >> 16 & 0xFu | (h & 0xF000000u) >> 8);
  }
  bits |= 0x64006400u;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    pairs[i] = (unpackFloat2x16(bits[i]) - zero) * by;
    if (HAS_OFFSETS) pairs[i] += more;
  }
}

// The next words of x and w are fetched into these, and stored once the matrices before them are
// multiplied. A thread's words of x: BM tokens of 8 words of 8 halves, of each digit; and of w: BN rows
// of 8 units of 8 columns. Where the columns end within a step, zeros are stored.
#define FETCH(step)                                                                                  \
  [[unroll]] for (uint i = 0; i < X_WORDS; ++i) {                                                    \
    const uint number = i * THREADS + gl_LocalInvocationID.x;                                        \
    const uint word = (step) * 8 + number % 8, row = number / 8 % BM, digit = number / 8 / BM;       \
    const uint token = min(first_token + row, c.tokens - 1);                                         \
    x_next[i] = word < c.cols / 8                                                                    \
                    ? x[c.x_first + (token * DIGITS + digit) * (c.cols / 8) + word]                  \
                    : uvec4(0);                                                                      \
  }                                                                                                  \
  [[unroll]] for (uint i = 0; i < W_WORDS; ++i) {                                                    \
    const uint number = i * THREADS + gl_LocalInvocationID.x;                                        \
    const uint row = number % 16, unit = min((step) * 8 + number / 16 % 8, c.cols / 8 - 1);          \
    const uint tile = min(first_row / 16 + number / 128, (m.rows - 1) / 16);                         \
    const uint words = EIGHT_BITS ? 2u : 1u;                                                         \
    const uint at = m.codes + (tile * (c.cols / 8) + unit) * words * 16 + row;                       \
    codes_next[i] = w[at];                                                                           \
    if (EIGHT_BITS) high_next[i] = w[at + 16];                                                       \
    scale_next[i] = scale_and_offset(m, tile, unit / 4, row) * factor;                               \
  }

#define STORE                                                                                        \
  [[unroll]] for (uint i = 0; i < X_WORDS; ++i) {                                                    \
    const uint number = i * THREADS + gl_LocalInvocationID.x;                                        \
    const uint to = number / 8 * STRIDE + number % 8 * 4;                                            \
    [[unroll]] for (uint j = 0; j < 4; ++j) x_tile[to + j] = unpackFloat2x16(x_next[i][j]);          \
  }                                                                                                  \
  [[unroll]] for (uint i = 0; i < W_WORDS; ++i) {                                                    \
    const uint number = i * THREADS + gl_LocalInvocationID.x;                                        \
    const uint to = (number / 128 * 16 + number % 16) * STRIDE + number / 16 % 8 * 4;                \
    f16vec2 pairs[4];                                                                                \
    weights_of(codes_next[i], high_next[i], scale_next[i], pairs);                                   \
    [[unroll]] for (uint j = 0; j < 4; ++j) w_tile[to + j] = pairs[j];                               \
  }

void main() {
  const uint block = gl_WorkGroupID.x, first_token = gl_WorkGroupID.y * BM;
  const uint which = uint(block >= c.blocks_0) + uint(block >= c.blocks_1);
  const Matrix m = c.matrices[which];
  const float factor = c.factors[which];
  const uint first_row = (block - (which == 0 ? 0 : which == 1 ? c.blocks_0 : c.blocks_1)) * BN;
  const uint subgroup = gl_LocalInvocationID.x / 32, lane = gl_LocalInvocationID.x % 32;
  const uint column = subgroup % ACROSS * 32, row = subgroup / ACROSS * TOKENS;

  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[FRAGMENTS * 2];
  [[unroll]] for (uint i = 0; i < FRAGMENTS * 2; ++i) {
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  }
  const uint steps = (c.cols + BK - 1) / BK;
  uvec4 x_next[X_WORDS];
  uint codes_next[W_WORDS], high_next[W_WORDS];
  vec2 scale_next[W_WORDS];
  FETCH(0)
  for (uint step = 0; step < steps; ++step) {
    STORE
    barrier();
    const uint next = min(step + 1, steps - 1);
    FETCH(next)
    [[unroll]] for (uint k = 0; k < BK / 16; ++k) {
      coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b[2];
      [[unroll]] for (uint j = 0; j < 2; ++j)
        coopMatLoad(b[j], w_tile, (column + j * 16) * STRIDE + k * 8, STRIDE,
                    gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint d = 0; d < DIGITS; ++d) {
        [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i) {
          coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a;
          coopMatLoad(a, x_tile, (d * BM + row + i * 16) * STRIDE + k * 8, STRIDE,
                      gl_CooperativeMatrixLayoutRowMajor);
          [[unroll]] for (uint j = 0; j < 2; ++j) sums[i * 2 + j] = coopMatMulAdd(a, b[j], sums[i * 2 + j]);
        }
      }
    }
    barrier();
  }
  [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i) {
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      coopMatStore(sums[i * 2 + j], results[subgroup], 0, 16, gl_CooperativeMatrixLayoutRowMajor);
      subgroupMemoryBarrierShared();
      subgroupBarrier();
      const uint out_row = first_row + column + j * 16 + lane % 16;
      for (uint n = lane / 16; n < 16; n += 2) {
        const uint token = first_token + row + i * 16 + n;
        if (token >= c.tokens || out_row >= m.rows) continue;
        float result = results[subgroup][n * 16 + lane % 16] / factor *
                       row_factor(m, out_row / 16, out_row % 16) * x_scales[c.aux_first + token];
        if (HAS_BIAS) result += uintBitsToFloat(w[m.bias + out_row]);
        result = activated(ACTIVATION, result);
        if (HAS_RESIDUAL) result += residual[c.residual_first + token * m.rows + out_row];
        y[m.y + token * m.rows + out_row] = result;
      }
      subgroupBarrier();
    }
  }
}
