// y = x * wT for many tokens, by cooperative matrices of signed bytes: a workgroup has BM tokens and BN
// rows of w, and each of its four subgroups a quarter of their products. A step brings BK columns to
// shared memory; the words of the next two steps are on their way meanwhile.
//
// Scales are small whole multiples of a step, as for HAS_MULTIPLES in gemm_bytes.comp. Instead of sums of
// whole numbers and of floats, whose registers would leave room for half as many results, there are
// whole numbers alone: where a run of columns ends, they are brought to the next run's step.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 128) in;

layout(constant_id = 1) const uint ACTIVATION = 0;
layout(constant_id = 2) const uint BM = 128;  // a multiple of 32
layout(constant_id = 3) const uint BN = 128;  // a multiple of 32; of 64 for a product
layout(constant_id = 4) const bool HAS_BIAS = false;
layout(constant_id = 5) const bool HAS_RESIDUAL = false;
// Of the results of two matrices; a subgroup has as many rows of the one as of the other. 0: none.
layout(constant_id = 6) const uint PRODUCT = 0;
layout(constant_id = 7) const uint BK = 64;           // 64 or 128
layout(constant_id = 8) const uint RUNS = 16;         // of the columns that a workgroup has, at most
layout(constant_id = 9) const uint SPLITS = 1;        // of the columns, as in gemm_bytes.comp
layout(constant_id = 11) const bool IS_EVEN = false;  // the number of columns is a multiple of BK

// What is read ahead is volatile: a compiler was seen to move such loads behind the multiplications, to
// where they are needed.
layout(binding = 0) readonly buffer Weights { uint w[]; };
layout(binding = 0) readonly buffer Weights4 { uvec4 w4[]; };
layout(binding = 0) volatile readonly buffer WeightsAhead { uint w_ahead[]; };
layout(binding = 0) volatile readonly buffer Weights4Ahead { uvec4 w4_ahead[]; };
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

const uint THREADS = 128;
const uint DOWN = BM / 32, ALONG = BN / 32;            // matrices of a subgroup: of tokens, of rows
const uint WORDS = BK / 16, STRIDE = WORDS + 1;        // of 16 columns; in shared memory
const uint X_WORDS = BM * WORDS / THREADS;             // of a thread
// A thread has four rows of 16 columns of w at a time.
const uint W_ALL = BN * WORDS / 4, W_WORDS = (W_ALL + THREADS - 1) / THREADS;
const uint BLOCK_ROWS = PRODUCT > 0 ? BN / 2 : BN;     // of a result

// Matrices are loaded from multiples of 16 bytes, so each array here is a multiple of that.
shared uvec4 tiles[(BM + BN) * STRIDE];  // tokens, and behind them rows of w; and results at the end
shared float factors[RUNS * BN];         // from each run's step to the next one's; the last step itself
shared float token_scales[BM];
shared float biases[HAS_BIAS ? BN : 4];

#define Sums coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define Integers coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define Left coopmat<int8_t, gl_ScopeSubgroup, 16, 32, gl_MatrixUseA>
#define Right coopmat<int8_t, gl_ScopeSubgroup, 32, 16, gl_MatrixUseB>

uint first_which, first_row;  // the block's matrix, and its first row there

// Where 16 of the block's rows of w are.
struct Tile {
  uint codes, scales;  // words of 16 bytes, and of 4: the first run's steps
};
Tile tile_of(uint number) {
  const uint in_subgroup = number % ALONG;
  const bool is_other = PRODUCT > 0 && in_subgroup >= ALONG / 2;
  const uint at = PRODUCT > 0 ? number / ALONG * (ALONG / 2) + in_subgroup % (ALONG / 2) : number;
  const Matrix m = c.matrices[is_other ? 1 : first_which];
  const uint tile = min(first_row / 16 + at, (m.rows - 1) / 16);
  return Tile(m.codes / 4 + tile * (c.cols / 8) * 4, run_at(m, tile, 0));
}

// A thread's words of the tiles lie so that eight threads' are in all banks of shared memory.
#define X_PLACE(number)                            \
  const uint word = (number) % WORDS;              \
  const uint row = WORDS == 4 ? (number) / 32 * 8 + (number) / 8 % 4 + (number) / 4 % 2 * 4 : (number) / WORDS;
#define W_PLACE(number)                                                   \
  const uint quad = ((number) & 1) | ((number) >> 2 & 2);                 \
  const uint word = ((number) >> 1 & 3) + (number) / 16 % (WORDS / 4) * 4; \
  const uint tile = (number) / 16 / (WORDS / 4);

// What is read does not hang on a condition, so that all of it is on its way at once. Where the columns
// end within a step, multiples behind them are zero.
#define FETCH(which, next)                                                                             \
  {                                                                                                    \
    const uint now = min(next, steps - 1);                                                             \
    [[unroll]] for (uint i = 0; i < X_WORDS; ++i) {                                                    \
      X_PLACE(i * THREADS + thread)                                                                    \
      const uint own = now * WORDS + word;                                                             \
      x_next[which * X_WORDS + i] = x[x_at[i] + (IS_EVEN ? own : min(own, c.cols / 16 - 1))];          \
    }                                                                                                  \
    [[unroll]] for (uint i = 0; i < W_WORDS; ++i) {                                                    \
      W_PLACE(min(i * THREADS + thread, W_ALL - 1))                                                    \
      const uint own = now * WORDS + word, at = IS_EVEN ? own : min(own, c.cols / 16 - 1);             \
      low_next[which * W_WORDS + i] = w4_ahead[codes_at[i] + at * 8];                                  \
      high_next[which * W_WORDS + i] = w4_ahead[codes_at[i] + at * 8 + 4];                             \
      const int four = int(w_ahead[multiples_at[i] + at * 16 / RUN * 16 + at * 16 / GROUP * 4]);       \
      multiples_next[which * W_WORDS + i] = at == own ? four : 0;                                      \
    }                                                                                                  \
  }

#define STORE(which)                                                                                   \
  [[unroll]] for (uint i = 0; i < X_WORDS; ++i) {                                                      \
    X_PLACE(i * THREADS + thread)                                                                      \
    tiles[row * STRIDE + word] = x_next[which * X_WORDS + i];                                          \
  }                                                                                                    \
  [[unroll]] for (uint i = 0; i < W_WORDS; ++i) {                                                      \
    W_PLACE(i * THREADS + thread)                                                                      \
    if (W_ALL % THREADS == 0 || i * THREADS + thread < W_ALL) {                                        \
      const uvec4 low = low_next[which * W_WORDS + i], high = high_next[which * W_WORDS + i];          \
      [[unroll]] for (uint r = 0; r < 4; ++r) {                                                        \
        const int multiple = bitfieldExtract(multiples_next[which * W_WORDS + i], int(8 * r), 8);      \
        tiles[(BM + tile * 16 + quad * 4 + r) * STRIDE + word] =                                       \
            uvec4(multiplied(low[r], multiple), multiplied(high[r], multiple));                        \
      }                                                                                                \
    }                                                                                                  \
  }

#define MULTIPLY                                                                                       \
  [[unroll]] for (uint g = 0; g < BK / 32; ++g) {                                                      \
    Left a[DOWN];                                                                                      \
    [[unroll]] for (uint i = 0; i < DOWN; ++i)                                                         \
      coopMatLoad(a[i], tiles, (first_line + i * 16) * STRIDE + g * 2, STRIDE,                         \
                  gl_CooperativeMatrixLayoutRowMajor);                                                 \
    [[unroll]] for (uint j = 0; j < ALONG; ++j) {                                                      \
      Right b;                                                                                         \
      coopMatLoad(b, tiles, (BM + first_column + j * 16) * STRIDE + g * 2, STRIDE,                     \
                  gl_CooperativeMatrixLayoutColumnMajor);                                              \
      [[unroll]] for (uint i = 0; i < DOWN; ++i)                                                       \
        sums[i * ALONG + j] = coopMatMulAdd(a[i], b, sums[i * ALONG + j]);                             \
    }                                                                                                  \
  }

// `which` words are this step's, and then those of the next step but one.
#define STEP(which, step)  \
  STORE(which)             \
  barrier();               \
  FETCH(which, (step) + 2) \
  MULTIPLY                 \
  barrier();

void main() {
  const uint block = gl_WorkGroupID.x, split = gl_WorkGroupID.y % SPLITS;
  const uint first_token = gl_WorkGroupID.y / SPLITS * BM;
  first_which = PRODUCT > 0 ? 0u : uint(block >= c.blocks_0) + uint(block >= c.blocks_1);
  first_row = (block - (first_which == 0 ? 0 : first_which == 1 ? c.blocks_0 : c.blocks_1)) * BLOCK_ROWS;
  const uint thread = gl_LocalInvocationID.x, subgroup = thread / 32, lane = thread % 32;
  const uint first_column = subgroup % 2 * (BN / 2), first_line = subgroup / 2 * (BM / 2);

  Integers sums[DOWN * ALONG];
  [[unroll]] for (uint i = 0; i < DOWN * ALONG; ++i) sums[i] = Integers(0);
  const uint all_steps = (c.cols + BK - 1) / BK, of_split = (all_steps + 2 * SPLITS - 1) / (2 * SPLITS) * 2;
  const uint first_step = split * of_split, steps = min(first_step + of_split, all_steps);
  const uint first_run = first_step * BK / RUN, last_run = (steps * BK - 1) / RUN;

  uvec4 x_next[2 * X_WORDS], low_next[2 * W_WORDS], high_next[2 * W_WORDS];
  int multiples_next[2 * W_WORDS];
  uint x_at[X_WORDS], codes_at[W_WORDS], multiples_at[W_WORDS];
  [[unroll]] for (uint i = 0; i < X_WORDS; ++i) {
    X_PLACE(i * THREADS + thread)
    x_at[i] = c.x_first + min(first_token + row, c.tokens - 1) * (c.cols / 16);
  }
  [[unroll]] for (uint i = 0; i < W_WORDS; ++i) {
    W_PLACE(min(i * THREADS + thread, W_ALL - 1))
    const Tile t = tile_of(tile);
    codes_at[i] = t.codes + quad;
    multiples_at[i] = t.scales + 16 + quad;
  }
  FETCH(0, first_step)
  FETCH(1, first_step + 1)
  for (uint i = thread; i < RUNS * BN; i += THREADS) {
    const uint run = min(first_run + i / BN, last_run), of_run = 16 + RUN / GROUP * 4;
    const uint at = tile_of(i % BN / 16).scales + i % 16;
    const float own = uintBitsToFloat(w[at + run * of_run]);
    factors[i] = run == last_run ? own : own / uintBitsToFloat(w[at + (run + 1) * of_run]);
  }
  token_scales[min(thread, BM - 1)] = x_scales[c.aux_first + min(first_token + min(thread, BM - 1), c.tokens - 1)];
  const Matrix m = c.matrices[first_which];
  if (HAS_BIAS)
    biases[min(thread, BN - 1)] = uintBitsToFloat(w[m.bias + min(first_row + min(thread, BN - 1), m.rows - 1)]);

  for (uint step = first_step; step < steps; step += 2) {
    STEP(0, step)
    if (step + 1 == steps) break;
    STEP(1, step + 1)
    if ((step + 2) * BK % RUN == 0 && step + 2 < steps) {
      const uint run = step * BK / RUN - first_run;
      [[unroll]] for (uint j = 0; j < ALONG; ++j) {
        Sums by;  // the same in every row
        coopMatLoad(by, factors, run * BN + first_column + j * 16, 0, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint i = 0; i < DOWN; ++i) {
          Sums whole = Sums(sums[i * ALONG + j]);
          [[unroll]] for (uint e = 0; e < whole.length(); ++e) whole[e] = roundEven(whole[e] * by[e]);
          sums[i * ALONG + j] = Integers(whole);
        }
      }
    }
  }

  const uint last = (last_run - first_run) * BN, results = PRODUCT > 0 ? ALONG / 2 : ALONG;
  [[unroll]] for (uint i = 0; i < DOWN; ++i) {
    Sums of_token;  // the same in every column
    coopMatLoad(of_token, token_scales, first_line + i * 16, 0, gl_CooperativeMatrixLayoutColumnMajor);
    [[unroll]] for (uint j = 0; j < results; ++j) {
      Sums by;
      coopMatLoad(by, factors, last + first_column + j * 16, 0, gl_CooperativeMatrixLayoutRowMajor);
      Sums result = Sums(sums[i * ALONG + j]);
      [[unroll]] for (uint e = 0; e < result.length(); ++e) result[e] *= by[e] * of_token[e];
      if (HAS_BIAS) {
        coopMatLoad(by, biases, first_column + j * 16, 0, gl_CooperativeMatrixLayoutRowMajor);
        result += by;
      }
      if (ACTIVATION != NONE) {
        [[unroll]] for (uint e = 0; e < result.length(); ++e) result[e] = activated(ACTIVATION, result[e]);
      }
      if (PRODUCT > 0) {
        Sums other = Sums(sums[i * ALONG + j + ALONG - results]);
        coopMatLoad(by, factors, last + first_column + BN / 4 + j * 16, 0, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint e = 0; e < result.length(); ++e)
          result[e] = product_of(result[e], other[e] * (by[e] * of_token[e]));
      }
      const uint row = first_row + (PRODUCT > 0 ? first_column / 2 : first_column) + j * 16;
      const uint token = first_token + first_line + i * 16, before = c.residual_first + token * m.rows + row;
      const uint at = m.y + (split * c.tokens + token) * m.rows + row;
      if (m.rows % 16 == 0 && row < m.rows && token + 16 <= c.tokens) {
        if (HAS_RESIDUAL) {
          Sums rest;
          coopMatLoad(rest, residual, before, m.rows, gl_CooperativeMatrixLayoutRowMajor);
          result += rest;
        }
        coopMatStore(result, y, at, m.rows, gl_CooperativeMatrixLayoutRowMajor);
      } else {
        coopMatStore(result, tiles, subgroup * 64, 4, gl_CooperativeMatrixLayoutRowMajor);
        SUBGROUP_BARRIER
        for (uint n = lane / 16; n < 16; n += 2) {
          if (token + n >= c.tokens || row + lane % 16 >= m.rows) continue;
          float one = uintBitsToFloat(tiles[subgroup * 64 + n * 4 + lane % 16 / 4][lane % 4]);
          if (HAS_RESIDUAL) one += residual[before + n * m.rows + lane % 16];
          y[at + n * m.rows + lane % 16] = one;
        }
        SUBGROUP_BARRIER
      }
    }
  }
}
