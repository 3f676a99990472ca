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
#include "head_row.glsl"

void main() {
  const uint number = gl_WorkGroupID.x, token = gl_WorkGroupID.y, thread = gl_LocalInvocationID.x;
  const bool is_query = number < c.heads;
  is_key = !is_query && number < c.heads + c.kv_heads;
  const uint head = is_query ? number : (number - c.heads) % c.kv_heads;
  const uint from = is_query ? c.q_first + (token * c.heads + head) * c.dim
                             : (is_key ? c.k_first : c.v_first) + (token * c.kv_heads + head) * c.dim;
  const uvec2 place = places[c.places_first / 2 + token];
  for (uint i = thread; i < c.dim; i += 64) row[i] = x[from + i];
  barrier();
  if (is_query || is_key) {
    if (HAS_NORMS) norm_row(true, 0, 0, thread, c.dim, is_query ? c.q_norm : c.k_norm, c.eps);
    if (HAS_ROPE) {
      const uint half_size = c.rotary / 2, at = c.table_first + token * c.rotary;
      for (uint i = thread; i < half_size; i += 64)
        rotate(i, half_size, table[at + i], table[at + half_size + i]);
      barrier();
    }
  }
  if (is_query) {
    const uint to = c.queries_first + (token * c.heads + head) * c.dim;
    for (uint i = thread; i < c.dim; i += 64) queries[to + i] = row[i];
  } else if (place.x != NO_PAGE) {
    const uint at = place.x * c.block_rows + head * c.head_rows + place.y;
    write_row(c.dim, (is_key ? c.keys_first : c.values_first) + at * row_words(c.dim));
  }
}
