// Heads of tokens into rows of a cache: a workgroup for each.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;

layout(binding = 0) readonly buffer X { float x[]; };  // [tokens][heads][dim]
layout(binding = 1) readonly buffer Places { uvec2 places[]; };  // of each token: page and row in it
layout(binding = 2) writeonly buffer Cache { uint cache[]; };

layout(push_constant) uniform Constants {
  uint heads, dim, head_rows, block_rows, x_first, places_first, cache_first;
} c;

#include "common.glsl"
#include "cache.glsl"

#define cache_store(at, word) cache[at] = word
#include "cache_row.glsl"

void main() {
  const uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y;
  const uvec2 place = places[c.places_first / 2 + token];
  if (place.x == NO_PAGE) return;
  const uint at = c.x_first + (token * c.heads + head) * c.dim;
  for (uint i = gl_LocalInvocationID.x; i < c.dim; i += 64) row[i] = x[at + i];
  barrier();
  const uint to = place.x * c.block_rows + head * c.head_rows + place.y;
  write_row(c.dim, c.cache_first + to * row_words(c.dim));
}
