// y = x * wT for many tokens, by cooperative matrices of signed bytes: BM tokens and BN rows of w for each
// workgroup, BK columns at a time. Products of a group of columns add up to whole numbers, which are
// then scaled: the same numbers as those of linear_few.comp, but for the order of sums.
//
// While matrices of one step are multiplied, the words of the next are on their way. Where there are few
// workgroups, PARTS of one take turns with the steps, and their sums are added up in the end; and the
// columns may be split among workgroups, whose results sum_parts.comp adds up.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x_id = 7) in;

layout(constant_id = 1) const uint ACTIVATION = 0;
layout(constant_id = 2) const uint BM = 64;
layout(constant_id = 3) const uint BN = 64;
layout(constant_id = 4) const bool HAS_BIAS = false;
layout(constant_id = 5) const bool HAS_RESIDUAL = false;
layout(constant_id = 6) const uint DIGITS = 1;  // of x: codes of 8 bits, or the two bytes of 16
layout(constant_id = 7) const uint THREADS = 128;
layout(constant_id = 8) const uint PARTS = 1;
layout(constant_id = 9) const uint BK = 64;
// Scales are so small whole multiples of a step that a code times its multiple is a byte: sums of 1,024
// columns are whole numbers then, which are scaled once. For codes of 8 bits.
layout(constant_id = 11) const bool HAS_MULTIPLES = false;

layout(constant_id = 12) const uint SPLITS = 1;  // of the columns

layout(binding = 0) readonly buffer Weights { uint w[]; };
layout(binding = 0) readonly buffer Weights4 { uvec4 w4[]; };
layout(binding = 1) readonly buffer X { uvec4 x[]; };  // [tokens][DIGITS][cols] bytes
layout(binding = 2) readonly buffer Scales { float x_scales[]; };
layout(binding = 3) readonly buffer Residual { float residual[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };

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

const uint OWN = THREADS / PARTS;      // threads of a part
const uint SUBGROUPS = OWN / 32;
const uint RUN = 1024;  // columns of a step of scales
const uint ACROSS = BN / 32;           // subgroups along the rows of w: each has 32 of them
const uint DOWN = SUBGROUPS / ACROSS;  // along the tokens
const uint TOKENS = BM / DOWN, FRAGMENTS = TOKENS / 16;
const uint GROUPS = BK / 32, X_ROW = BK / 16, W_ROW = BK / 8;
const uint X_STRIDE = X_ROW + 1, W_STRIDE = W_ROW + 2;  // of a row in shared memory, in such words
const uint X_WORDS = BM * DIGITS * X_ROW / OWN, W_QUADS = BN * W_ROW / 4 / OWN;  // of a thread
// Scales of a step: of each row and group, or of each row.
const uint SCALE_PART = HAS_MULTIPLES ? BN : GROUPS * BN, SCALES = (SCALE_PART + OWN - 1) / OWN;
const uint X_PART = DIGITS * BM * X_STRIDE, W_PART = BN * W_STRIDE;

shared uvec4 x_tile[PARTS * X_PART];  // and results at the end: 64 for each subgroup
shared uvec2 w_tile[PARTS * W_PART];
shared float scales[PARTS * SCALE_PART];

#define Sums coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define Integers coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define Left coopmat<int8_t, gl_ScopeSubgroup, 16, 32, gl_MatrixUseA>
#define Right coopmat<int8_t, gl_ScopeSubgroup, 32, 16, gl_MatrixUseB>

// Eight columns as signed bytes.
uvec2 bytes_of(uint low, uint high) {
  if (EIGHT_BITS) return uvec2(low, high) ^ 0x80808080u;
  const uvec2 nibbles = uvec2(low, low >> 4) & 0x0F0F0F0Fu;
  return (nibbles | 0x80808080u) - 0x08080808u ^ 0x80808080u;
}

// Eight columns times a multiple of -15 to 16, as signed bytes. For a multiple below zero nibbles count
// down, so that products with its size are bytes without a sign; what zero makes is taken away from them,
// the highest bits apart, so that nothing is carried from one byte to the next.
uvec2 multiplied(uint codes, int multiple) {
  const uint size = uint(abs(multiple)), zero = multiple < 0 ? size * 7 : size * 8;
  const uint flipped = multiple < 0 ? 0x0F0F0F0Fu : 0u, added = (256 - zero & 255u) * 0x01010101u;
  const uvec2 products = (uvec2(codes, codes >> 4) & 0x0F0F0F0Fu ^ flipped) * size;
  return (products & 0x7F7F7F7Fu) + (added & 0x7F7F7F7Fu) ^ (products ^ added) & 0x80808080u;
}

// Where the steps of a tile's run of columns are, and behind them its multiples.
uint run_at(Matrix m, uint tile, uint run) {
  const uint groups = c.cols / GROUP, runs = (c.cols + RUN - 1) / RUN;
  return m.scales + tile * (runs * 16 + groups * 4) + run * (16 + RUN / GROUP * 4);
}

// Of four rows, those from 4 * quad on, a byte each.
int multiples_of(Matrix m, uint tile, uint unit, uint quad) {
  const uint run = unit * 8 / RUN, group = (unit * 8 - run * RUN) / GROUP;
  return int(w[run_at(m, tile, run) + 16 + group * 4 + quad]);
}

// The next words of x and w are fetched into these, and stored once the matrices before them are
// multiplied. A thread's words of x: BM tokens of X_ROW words of 16 bytes, of each digit; and of w: BN rows
// of W_ROW units of 8 columns, four rows at a time. Where the columns end, zeros are stored.
#define FETCH(step)                                                                                  \
  [[unroll]] for (uint i = 0; i < X_WORDS; ++i) {                                                    \
    const uint number = i * OWN + thread;                                                            \
    const uint word = (step) * X_ROW + number % X_ROW, row = number / X_ROW % BM;                    \
    const uint digit = number / X_ROW / BM, token = min(first_token + row, c.tokens - 1);            \
    x_next[i] = word < c.cols / 16                                                                   \
                    ? x[c.x_first + (token * DIGITS + digit) * (c.cols / 16) + word]                 \
                    : uvec4(0);                                                                      \
  }                                                                                                  \
  [[unroll]] for (uint i = 0; i < W_QUADS; ++i) {                                                    \
    const uint number = i * OWN + thread, quad = number % 4;                                         \
    const uint unit = min((step) * W_ROW + number / 4 % W_ROW, c.cols / 8 - 1);                      \
    const uint tile = min(first_row / 16 + number / (4 * W_ROW), (m.rows - 1) / 16);                 \
    const uint words = EIGHT_BITS ? 2u : 1u;                                                         \
    const uint at = m.codes / 4 + (tile * (c.cols / 8) + unit) * words * 4 + quad;                   \
    codes_next[i] = w4[at];                                                                          \
    if (EIGHT_BITS) high_next[i] = w4[at + 4];                                                       \
    if (HAS_MULTIPLES) multiples_next[i] = multiples_of(m, tile, unit, quad);                        \
  }                                                                                                  \
  [[unroll]] for (uint i = 0; i < SCALES; ++i) {                                                     \
    const uint number = min(i * OWN + thread, SCALE_PART - 1);                                       \
    const uint row = number % BN, chunk = min((step) * GROUPS + number / BN, c.cols / 32 - 1);       \
    const uint tile = min((first_row + row) / 16, (m.rows - 1) / 16);                                \
    scale_next[i] = HAS_MULTIPLES ? uintBitsToFloat(w[run_at(m, tile, chunk * 32 / RUN) + row % 16]) \
                                  : scale_and_offset(m, tile, chunk, row % 16).x;                    \
  }

#define STORE                                                                                        \
  [[unroll]] for (uint i = 0; i < X_WORDS; ++i) {                                                    \
    const uint number = i * OWN + thread;                                                            \
    x_tile[part * X_PART + number / X_ROW * X_STRIDE + number % X_ROW] = x_next[i];                  \
  }                                                                                                  \
  [[unroll]] for (uint i = 0; i < W_QUADS; ++i) {                                                    \
    const uint number = i * OWN + thread;                                                            \
    const uint first = number / (4 * W_ROW) * 16 + number % 4 * 4;                                   \
    [[unroll]] for (uint r = 0; r < 4; ++r) {                                                        \
      w_tile[part * W_PART + (first + r) * W_STRIDE + number / 4 % W_ROW] =                          \
          HAS_MULTIPLES                                                                              \
              ? multiplied(codes_next[i][r], bitfieldExtract(multiples_next[i], int(8 * r), 8))      \
              : bytes_of(codes_next[i][r], high_next[i][r]);                                         \
    }                                                                                                \
  }                                                                                                  \
  [[unroll]] for (uint i = 0; i < SCALES; ++i)                                                       \
    scales[part * SCALE_PART + min(i * OWN + thread, SCALE_PART - 1)] = scale_next[i];

void main() {
  const uint block = gl_WorkGroupID.x, split = gl_WorkGroupID.y % SPLITS;
  const uint first_token = gl_WorkGroupID.y / SPLITS * BM;
  const uint which = uint(block >= c.blocks_0) + uint(block >= c.blocks_1);
  const Matrix m = c.matrices[which];
  const uint first_row = (block - (which == 0 ? 0 : which == 1 ? c.blocks_0 : c.blocks_1)) * BN;
  const uint part = gl_LocalInvocationID.x / OWN, thread = gl_LocalInvocationID.x % OWN;
  const uint subgroup = thread / 32, lane = thread % 32, of_all = gl_LocalInvocationID.x / 32;
  const uint column = subgroup % ACROSS * 32, row = subgroup / ACROSS * TOKENS;

  Sums sums[FRAGMENTS * 2];
  Integers run_sums[DIGITS == 1 ? FRAGMENTS * 2 : 1];
  [[unroll]] for (uint i = 0; i < FRAGMENTS * 2; ++i) {
    sums[i] = Sums(0.0);
    if (HAS_MULTIPLES) run_sums[i] = Integers(0);
  }
  // Those of a split are as many for each part, but for the last one's.
  const uint all_steps = (c.cols + BK - 1) / BK;
  const uint of_split = (all_steps + SPLITS * PARTS - 1) / (SPLITS * PARTS) * PARTS;
  const uint first_step = split * of_split, steps = min(first_step + of_split, all_steps);
  uvec4 x_next[X_WORDS];
  uvec4 codes_next[W_QUADS], high_next[W_QUADS];
  int multiples_next[W_QUADS];
  float scale_next[SCALES];
  FETCH(first_step + part)
  for (uint step = first_step + part; step < steps + part; step += PARTS) {  // as often in all parts
    STORE
    barrier();
    FETCH(step + PARTS)
    [[unroll]] for (uint g = 0; g < GROUPS; ++g) {
      Left a[FRAGMENTS * DIGITS];
      [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i) {
        [[unroll]] for (uint d = 0; d < DIGITS; ++d)
          coopMatLoad(a[i * DIGITS + d], x_tile, part * X_PART + (d * BM + row + i * 16) * X_STRIDE + g * 2, X_STRIDE,
                      gl_CooperativeMatrixLayoutRowMajor);
      }
      [[unroll]] for (uint j = 0; j < 2; ++j) {
        Right b;
        coopMatLoad(b, w_tile, part * W_PART + (column + j * 16) * W_STRIDE + g * 4, W_STRIDE,
                    gl_CooperativeMatrixLayoutColumnMajor);
        if (HAS_MULTIPLES) {
          [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i)
            run_sums[i * 2 + j] = coopMatMulAdd(a[i], b, run_sums[i * 2 + j]);
          continue;
        }
        Sums by;  // the same scales in every row
        coopMatLoad(by, scales, part * SCALE_PART + g * BN + column + j * 16, 0, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i) {
          Integers whole = Integers(0);
          [[unroll]] for (uint d = 0; d < DIGITS; ++d) {
            if (d > 0) whole = whole * 256;
            whole = coopMatMulAdd(a[i * DIGITS + d], b, whole);
          }
          const Sums part = Sums(whole);
          [[unroll]] for (uint e = 0; e < part.length(); ++e) sums[i * 2 + j][e] += part[e] * by[e];
        }
      }
    }
    const uint run = step * BK / RUN, next = step + PARTS;  // of this part
    if (HAS_MULTIPLES && (next >= steps || next * BK / RUN != run)) {
      [[unroll]] for (uint j = 0; j < 2; ++j) {
        Sums by;
        coopMatLoad(by, scales, part * SCALE_PART + column + j * 16, 0,
                    gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i) {
          const Sums whole = Sums(run_sums[i * 2 + j]);
          [[unroll]] for (uint e = 0; e < whole.length(); ++e) sums[i * 2 + j][e] += whole[e] * by[e];
          run_sums[i * 2 + j] = Integers(0);
        }
      }
    }
    barrier();
  }
  [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i) {
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      coopMatStore(sums[i * 2 + j], x_tile, of_all * 64, 4, gl_CooperativeMatrixLayoutRowMajor);
      if (PARTS > 1) {
        barrier();
      } else {
        subgroupMemoryBarrierShared();
        subgroupBarrier();
      }
      // Lanes of all parts share the tokens of a fragment out.
      const uint out_row = first_row + column + j * 16 + lane % 16;
      for (uint n = part * 2 + lane / 16; n < 16; n += 2 * PARTS) {
        const uint token = first_token + row + i * 16 + n;
        if (token >= c.tokens || out_row >= m.rows) continue;
        float sum = 0.0;
        for (uint p = 0; p < PARTS; ++p)
          sum += uintBitsToFloat(x_tile[(p * SUBGROUPS + subgroup) * 64 + n * 4 + lane % 16 / 4][lane % 4]);
        float result =
            sum * row_factor(m, out_row / 16, out_row % 16) * x_scales[c.aux_first + token];
        if (HAS_BIAS) result += uintBitsToFloat(w[m.bias + out_row]);
        result = activated(ACTIVATION, result);
        if (HAS_RESIDUAL) result += residual[c.residual_first + token * m.rows + out_row];
        y[m.y + (split * c.tokens + token) * m.rows + out_row] = result;
      }
      if (PARTS > 1)
        barrier();
      else
        subgroupBarrier();
    }
  }
}
