// Attention of many tokens that follow each other in one sequence, by cooperative matrices: 64 tokens of
// a head for each workgroup, 16 for each subgroup, page after page of keys. The largest score and the
// sum of powers of each row are kept up to date as pages come (flash attention).
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 128) in;

layout(constant_id = 1) const bool HAS_SOFTCAP = false;
layout(constant_id = 2) const uint DIM = 64;  // a multiple of 16, at most 128

layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer K { uvec4 k[]; };
layout(binding = 2) readonly buffer V { uvec4 v[]; };
layout(binding = 3) readonly buffer Step { uint numbers[]; };  // as in attention.comp
layout(binding = 4) writeonly buffer Y { float y[]; };

layout(push_constant) uniform Constants {
  uint heads, heads_per_kv, tokens, head_rows, block_rows, window;
  uint q_first, k_first, v_first, step_first, y_first;
  float scale, softcap;
} c;

#include "common.glsl"
#include "subgroup_barrier.glsl"
#include "activations.glsl"

const uint PAGE = 64, PARTS = DIM / 16, QUADS = DIM / 8;
const uint T_STRIDE = QUADS + 1, S_STRIDE = 68, P_STRIDE = 36;  // uvec4, floats, f16vec2
// The queries at first, then a page of keys and its values in turn.
shared uvec4 tile[64 * T_STRIDE];
shared float scores[4][16 * S_STRIDE];
shared f16vec2 powers[4][16 * P_STRIDE];
shared float factors[4][256];

#define Accumulator coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define Left coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define Right coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>

// A page's rows on their way to the tile, a part of them for each thread.
uvec4 fetched[PARTS];

#define FETCH(from, first, page)                                                              \
  {                                                                                           \
    const uint place = (numbers[pages + (page)] * c.block_rows + kv_head * c.head_rows) * QUADS; \
    [[unroll]] for (uint i = 0; i < PARTS; ++i)                                               \
      fetched[i] = from[(first) / 4 + place + i * 128 + gl_LocalInvocationID.x];              \
  }

// When nobody reads what was there before.
void fill_tile() {
  barrier();
  [[unroll]] for (uint i = 0; i < PARTS; ++i) {
    const uint at = i * 128 + gl_LocalInvocationID.x;
    tile[at / QUADS * T_STRIDE + at % QUADS] = fetched[i];
  }
  barrier();
}

uvec4 query_at(uint at) {
  uvec4 words;
  [[unroll]] for (uint i = 0; i < 4; ++i) words[i] = packFloat2x16(f16vec2(q[at + 2 * i], q[at + 2 * i + 1]));
  return words;
}

void main() {
  const uint head = gl_WorkGroupID.x, first = gl_WorkGroupID.y * 64, kv_head = head / c.heads_per_kv;
  const uint subgroup = gl_LocalInvocationID.x / 32, lane = gl_LocalInvocationID.x % 32;
  [[unroll]] for (uint i = 0; i < PARTS; ++i) {
    const uint at = i * 128 + gl_LocalInvocationID.x, token = min(first + at / QUADS, c.tokens - 1);
    fetched[i] = query_at(c.q_first + (token * c.heads + head) * DIM + at % QUADS * 8);
  }
  fill_tile();
  Left queries[PARTS];
  Accumulator result[PARTS];
  [[unroll]] for (uint d = 0; d < PARTS; ++d) {
    coopMatLoad(queries[d], tile, subgroup * 16 * T_STRIDE + d * 2, T_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    result[d] = Accumulator(0.0);
  }
  // Two lanes have a row, and every second pair of a page's keys each.
  const float none = uintBitsToFloat(0xFF800000u);
  const uint row = lane / 2, pair_first = lane % 2;
  const uint own_token = min(first + subgroup * 16 + row, c.tokens - 1);
  const uint own_keys = numbers[c.step_first + own_token * 4 + 1];
  const uint own_from = c.window > 0 && own_keys > c.window ? own_keys - c.window : 0;
  float largest = none, total = 0.0;

  const uint first_token = c.step_first + min(first, c.tokens - 1) * 4;
  const uint last_token = c.step_first + min(first + 63, c.tokens - 1) * 4;
  const uint first_keys = numbers[first_token + 1], keys = numbers[last_token + 1];
  const uint from = c.window > 0 && first_keys > c.window ? first_keys - c.window : 0;
  const uint pages = c.step_first + numbers[first_token];

  FETCH(k, c.k_first, from / PAGE)
  for (uint page = from / PAGE; page * PAGE < keys; ++page) {
    fill_tile();
    FETCH(v, c.v_first, page)
    [[unroll]] for (uint n = 0; n < 4; ++n) {
      Accumulator sums = Accumulator(0.0);
      [[unroll]] for (uint d = 0; d < PARTS; ++d) {
        Right key;
        coopMatLoad(key, tile, n * 16 * T_STRIDE + d * 2, T_STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
        sums = coopMatMulAdd(queries[d], key, sums);
      }
      coopMatStore(sums, scores[subgroup], n * 16, S_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    }
    SUBGROUP_BARRIER
    float score[32], most = largest;
    [[unroll]] for (uint i = 0; i < 32; ++i) {
      const uint in_page = i / 2 * 4 + pair_first * 2 + i % 2, key = page * PAGE + in_page;
      float s = scores[subgroup][row * S_STRIDE + in_page] * c.scale;
      if (HAS_SOFTCAP) s = c.softcap * tanh_of(s / c.softcap);
      score[i] = key >= own_from && key < own_keys ? s : none;
      most = max(most, score[i]);
    }
    most = max(most, subgroupShuffleXor(most, 1));
    const bool sees = most > none;  // anything, so far
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < 16; ++i) {
      const vec2 pair = sees ? exp(vec2(score[2 * i], score[2 * i + 1]) - most) : vec2(0.0);
      powers[subgroup][row * P_STRIDE + 2 * i + pair_first] = f16vec2(pair);
      sum += pair.x + pair.y;
    }
    const float factor = sees ? exp(largest - most) : 1.0;
    largest = most;
    total = total * factor + sum + subgroupShuffleXor(sum, 1);
    [[unroll]] for (uint i = 0; i < 8; ++i) factors[subgroup][row * 16 + lane % 2 * 8 + i] = factor;
    fill_tile();
    if ((page + 1) * PAGE < keys) FETCH(k, c.k_first, page + 1)
    Accumulator by;
    coopMatLoad(by, factors[subgroup], 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    Left power[4];
    [[unroll]] for (uint n = 0; n < 4; ++n)
      coopMatLoad(power[n], powers[subgroup], n * 8, P_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint d = 0; d < PARTS; ++d) {
      for (uint i = 0; i < result[d].length(); ++i) result[d][i] *= by[i];
      [[unroll]] for (uint n = 0; n < 4; ++n) {
        Right value;
        coopMatLoad(value, tile, n * 16 * T_STRIDE + d * 2, T_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
        result[d] = coopMatMulAdd(power[n], value, result[d]);
      }
    }
    SUBGROUP_BARRIER
  }
  [[unroll]] for (uint d = 0; d < PARTS; ++d) {
    coopMatStore(result[d], factors[subgroup], 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    SUBGROUP_BARRIER
    const uint token = first + subgroup * 16 + row;
    if (token < c.tokens) {
      for (uint i = 0; i < 8; ++i) {
        const uint column = lane % 2 * 8 + i;
        y[c.y_first + (token * c.heads + head) * DIM + d * 16 + column] =
            factors[subgroup][row * 16 + column] / total;
      }
    }
    SUBGROUP_BARRIER
  }
}
