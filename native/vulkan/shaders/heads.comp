// What stands between a layer's queries, keys and values and attention: norms of heads, rotation,
// and the rows of the caches. A workgroup for each head of each token: first those of the queries,
// then of the keys, then of the values.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;

layout(constant_id = 1) const bool HAS_NORMS = false;
layout(constant_id = 2) const bool HAS_ROPE = true;

layout(binding = 0) readonly buffer X { float x[]; };  // queries, keys and values: [tokens][heads][dim]
layout(binding = 1) readonly buffer Table { float table[]; };  // [rows][cos, sin]
layout(binding = 2) readonly buffer Norms { float norms[]; };
layout(binding = 3) readonly buffer Places { uvec2 places[]; };  // of each token: page and row in it
layout(binding = 4) writeonly buffer Queries { float queries[]; };
layout(binding = 5) writeonly buffer Keys { uint keys[]; };
layout(binding = 6) writeonly buffer Values { uint values[]; };

layout(push_constant) uniform Constants {
  uint heads, kv_heads, dim, rotary, head_rows, block_rows;
  uint q_first, k_first, v_first, table_first, q_norm, k_norm, places_first;
  uint queries_first, keys_first, values_first;
  float eps;
} c;

#include "common.glsl"
#include "cache.glsl"

// The caches of keys and of values are two buffers.
bool is_key;
#define cache_store(at, word) if (is_key) keys[at] = word; else values[at] = word
#include "cache_row.glsl"

shared float squares[64];

void norm_row(uint weights) {
  const uint thread = gl_LocalInvocationID.x;
  float own = 0.0;
  for (uint i = thread; i < c.dim; i += 64) own = fma(row[i], row[i], own);
  squares[thread] = own;
  for (uint half_size = 32; half_size > 0; half_size /= 2) {
    barrier();
    if (thread < half_size) squares[thread] += squares[thread + half_size];
  }
  barrier();
  const float inverse = 1.0 / sqrt(squares[0] / float(c.dim) + c.eps);
  for (uint i = thread; i < c.dim; i += 64) row[i] = row[i] * inverse * norms[weights + i];
  barrier();
}

void rotate_row(uint token) {
  const uint half_size = c.rotary / 2, at = c.table_first + token * c.rotary;
  for (uint i = gl_LocalInvocationID.x; i < half_size; i += 64) {
    const float left = row[i], right = row[i + half_size];
    const float cosine = table[at + i], sine = table[at + half_size + i];
    row[i] = left * cosine - right * sine;
    row[i + half_size] = right * cosine + left * sine;
  }
  barrier();
}

void main() {
  const uint number = gl_WorkGroupID.x, token = gl_WorkGroupID.y, thread = gl_LocalInvocationID.x;
  const bool is_query = number < c.heads;
  is_key = !is_query && number < c.heads + c.kv_heads;
  const uint head = is_query ? number : (number - c.heads) % c.kv_heads;
  const uint from = is_query ? c.q_first + (token * c.heads + head) * c.dim
                             : (is_key ? c.k_first : c.v_first) + (token * c.kv_heads + head) * c.dim;
  for (uint i = thread; i < c.dim; i += 64) row[i] = x[from + i];
  barrier();
  if (is_query || is_key) {
    if (HAS_NORMS) norm_row(is_query ? c.q_norm : c.k_norm);
    if (HAS_ROPE) rotate_row(token);
  }
  if (is_query) {
    const uint to = c.queries_first + (token * c.heads + head) * c.dim;
    for (uint i = thread; i < c.dim; i += 64) queries[to + i] = row[i];
    return;
  }
  const uvec2 place = places[c.places_first / 2 + token];
  if (place.x == NO_PAGE) return;
  const uint at = place.x * c.block_rows + head * c.head_rows + place.y;
  write_row(c.dim, (is_key ? c.keys_first : c.values_first) + at * row_words(c.dim));
}
