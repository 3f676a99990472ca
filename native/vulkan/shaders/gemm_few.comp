// y = x * wT for few tokens, by cooperative matrices of signed bytes: what counts is how fast weights
// come. A workgroup has BM tokens and TILES of 16 rows; PARTS of its subgroups share a tile's columns out.
// Each unpacks its weights for itself, so that subgroups wait for one another only where the tokens' next
// BK columns are brought to shared memory. All that the next columns need is on its way while these are
// multiplied: it is asked for at once, because a thread waits for all of its loads when it needs one.
//
// Scales are small whole multiples of a step (multiples.glsl); push constants are gemm_bytes.comp's.
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
layout(constant_id = 2) const uint BM = 32;  // tokens: 16, 32 or 64
layout(constant_id = 3) const uint TILES = 4;
layout(constant_id = 4) const bool HAS_BIAS = false;
layout(constant_id = 5) const bool HAS_RESIDUAL = false;
// Of the results of two matrices, whose tiles are half of the workgroup's each; 0: none.
layout(constant_id = 6) const uint PRODUCT = 0;
layout(constant_id = 7) const uint THREADS = 256;  // 32 for each part of each tile
layout(constant_id = 8) const uint PARTS = 2;
layout(constant_id = 9) const uint BK = 256;  // a multiple of 64 for each part, at most 1,024

layout(binding = 0) readonly buffer Weights { uint w[]; };
layout(binding = 0) readonly buffer Weights4 { uvec4 w4[]; };
// What is asked for long before it is needed: compilers put that off, unless they may not.
layout(binding = 0) volatile readonly buffer EarlyWeights { uint early[]; };
layout(binding = 0) volatile readonly buffer EarlyWeights4 { uvec4 early4[]; };
layout(binding = 1) volatile readonly buffer X { uvec4 x[]; };  // [tokens][cols] bytes
layout(binding = 2) readonly buffer Scales { float x_scales[]; };
layout(binding = 3) readonly buffer Residual { float residual[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };

struct Matrix {
  uint codes, scales, second, bias, y, rows;
};
layout(push_constant) uniform Constants {
  uint cols, tokens, x_first, aux_first, residual_first;
  uint blocks_0, blocks_1;  // of a workgroup's rows: of the first matrix, and of the first two
  Matrix matrices[3];
} c;

#include "common.glsl"
#include "subgroup_barrier.glsl"
#include "activations.glsl"
#include "encodings.glsl"
#include "multiples.glsl"
#include "products.glsl"

const uint SUBGROUPS = TILES * PARTS;
const uint OWN = BK / PARTS, STEPS = OWN / 64;  // columns of a subgroup, of which 64 at a time
const uint FRAGMENTS = BM / 16, X_ROW = BK / 16, X_STRIDE = X_ROW + 1;  // uvec4
const uint X_WORDS = (BM * X_ROW + THREADS - 1) / THREADS;              // of a thread
const uint X_TILE = BM * X_STRIDE > SUBGROUPS * 64 ? BM * X_STRIDE : SUBGROUPS * 64;
const uint W_STRIDE = 10;  // uvec2

shared uvec4 x_tile[X_TILE];  // and 16 tokens' results at the end
shared uvec2 w_tile[SUBGROUPS * 16 * W_STRIDE];
shared float steps[SUBGROUPS * 16];

#define Sums coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define Integers coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define Left coopmat<int8_t, gl_ScopeSubgroup, 16, 32, gl_MatrixUseA>
#define Right coopmat<int8_t, gl_ScopeSubgroup, 32, 16, gl_MatrixUseB>

uvec4 x_next[X_WORDS], codes_next[STEPS];
int multiples_next[STEPS];

// What belongs to the columns from `first` on; behind the last one there are others, which nobody takes.
#define FETCH(first)                                                                                \
  [[unroll]] for (uint s = 0; s < STEPS; ++s) {                                                     \
    const uint eight = min(((first) + part * OWN + s * 64) / 8 + lane / 4, c.cols / 8 - 1);         \
    codes_next[s] = early4[m.codes / 4 + (tile * (c.cols / 8) + eight) * 4 + lane % 4];             \
    multiples_next[s] = int(early[multiples_at(m, tile, eight, lane % 4)]);                         \
  }                                                                                                 \
  [[unroll]] for (uint i = 0; i < X_WORDS; ++i) {                                                   \
    const uint number = i * THREADS + thread, token = min(first_token + number / X_ROW, c.tokens - 1); \
    x_next[i] = x[c.x_first + token * (c.cols / 16) + min((first) / 16 + number % X_ROW, c.cols / 16 - 1)]; \
  }

// A block's place among those of the matrices.
uvec2 matrix_and_block(uint block) {
  const uint which = PRODUCT > 0 ? 0u : uint(block >= c.blocks_0) + uint(block >= c.blocks_1);
  return uvec2(which, block - (which == 0 ? 0 : which == 1 ? c.blocks_0 : c.blocks_1));
}

float finished(Matrix m, uint row, float sum, float scale) {
  float result = sum * scale;
  if (HAS_BIAS) result += uintBitsToFloat(w[m.bias + row]);
  return activated(ACTIVATION, result);
}

void main() {
  const uint thread = gl_LocalInvocationID.x, subgroup = thread / 32, lane = thread % 32;
  const uint slot = subgroup / PARTS, part = subgroup % PARTS, first_token = gl_WorkGroupID.y * BM;
  const uvec2 place = matrix_and_block(gl_WorkGroupID.x);
  const uint of_matrix = PRODUCT > 0 ? TILES / 2 : TILES;  // tiles of a workgroup
  const uint which = PRODUCT > 0 ? slot / of_matrix : place.x;
  const Matrix m = c.matrices[which];
  const uint tile = min(place.y * of_matrix + slot % of_matrix, (m.rows - 1) / 16);
  const uint w_first = subgroup * 16 * W_STRIDE, chunks = c.cols / 32;

  Sums sums[FRAGMENTS];
  Integers run_sums[FRAGMENTS];
  [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i) {
    sums[i] = Sums(0.0);
    run_sums[i] = Integers(0);
  }
  FETCH(0)
  for (uint first = 0; first < c.cols; first += BK) {
    barrier();
    [[unroll]] for (uint i = 0; i < X_WORDS; ++i) {
      const uint number = i * THREADS + thread;
      if (BM * X_ROW % THREADS == 0 || number < BM * X_ROW)
        x_tile[number / X_ROW * X_STRIDE + number % X_ROW] = x_next[i];
    }
    uvec4 codes[STEPS];
    int multiples[STEPS];
    [[unroll]] for (uint s = 0; s < STEPS; ++s) {
      codes[s] = codes_next[s];
      multiples[s] = multiples_next[s];
    }
    const float step_of_row = uintBitsToFloat(early[run_at(m, tile, first / RUN) + lane % 16]);
    barrier();
    FETCH(first + BK)
    [[unroll]] for (uint s = 0; s < STEPS; ++s) {
      [[unroll]] for (uint r = 0; r < 4; ++r) {
        w_tile[w_first + (lane % 4 * 4 + r) * W_STRIDE + lane / 4] =
            multiplied(codes[s][r], bitfieldExtract(multiples[s], int(8 * r), 8));
      }
      SUBGROUP_BARRIER
      [[unroll]] for (uint g = 0; g < 2; ++g) {
        const uint chunk = part * OWN / 32 + s * 2 + g;  // of those in shared memory
        if (first / 32 + chunk >= chunks) break;
        Right b;
        coopMatLoad(b, w_tile, w_first + g * 4, W_STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i) {
          Left a;
          coopMatLoad(a, x_tile, i * 16 * X_STRIDE + chunk * 2, X_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
          run_sums[i] = coopMatMulAdd(a, b, run_sums[i]);
        }
      }
      SUBGROUP_BARRIER
    }
    if ((first + BK) % RUN == 0 || first + BK >= c.cols) {
      if (lane < 16) steps[subgroup * 16 + lane] = step_of_row;
      SUBGROUP_BARRIER
      Sums by;  // the same in every row
      coopMatLoad(by, steps, subgroup * 16, 0, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i) {
        const Sums whole = Sums(run_sums[i]);
        [[unroll]] for (uint e = 0; e < whole.length(); ++e) sums[i][e] += whole[e] * by[e];
        run_sums[i] = Integers(0);
      }
      SUBGROUP_BARRIER
    }
  }
  // The results of 16 tokens at a time, of all subgroups; those that share a tile are added up.
  [[unroll]] for (uint i = 0; i < FRAGMENTS; ++i) {
    barrier();
    coopMatStore(sums[i], x_tile, subgroup * 64, 4, gl_CooperativeMatrixLayoutRowMajor);
    barrier();
    for (uint n = thread; n < 16 * 16 * of_matrix; n += THREADS) {
      const uint in_tile = n % 16, at = n / 16 % 16, own_slot = n / 256, token = first_token + i * 16 + at;
      const Matrix own = c.matrices[place.x];
      const uint row = (place.y * of_matrix + own_slot) * 16 + in_tile;
      if (token >= c.tokens || row >= own.rows) continue;
      float left = 0.0, right = 0.0;
      for (uint p = 0; p < PARTS; ++p) {
        const uint of_left = (own_slot * PARTS + p) * 64 + at * 4 + in_tile / 4;
        left += uintBitsToFloat(x_tile[of_left][in_tile % 4]);
        if (PRODUCT > 0) right += uintBitsToFloat(x_tile[of_left + of_matrix * PARTS * 64][in_tile % 4]);
      }
      const float scale = x_scales[c.aux_first + token];
      float result = finished(own, row, left, scale);
      if (PRODUCT > 0) result = product_of(result, finished(c.matrices[1], row, right, scale));
      if (HAS_RESIDUAL) result += residual[c.residual_first + token * own.rows + row];
      y[own.y + token * own.rows + row] = result;
    }
  }
}
