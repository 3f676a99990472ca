// Heads of tokens into rows of a cache: a workgroup for each.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;

layout(binding = 0) readonly buffer X { float x[]; };  // [tokens][heads][dim]
layout(binding = 1) readonly buffer Items { uint items[]; };  // token, page and row in it
layout(binding = 2) buffer Cache { uint cache[]; };

layout(push_constant) uniform Constants {
  uint heads, dim, head_rows, block_rows, x_first, items_first, cache_first;
} c;

#include "common.glsl"
#include "cache.glsl"

shared float least[64];
shared float most[64];
shared uint unfit;  // whether the row holds something that is not finite

bool is_finite(float x) { return (floatBitsToUint(x) & 0x7F800000u) != 0x7F800000u; }

void find_range(uint at) {
  const uint thread = gl_LocalInvocationID.x;
  if (thread == 0) unfit = 0;
  barrier();
  float low = x[at], high = low;
  for (uint i = thread; i < c.dim; i += 64) {
    if (!is_finite(x[at + i])) unfit = 1;
    low = min(low, x[at + i]);
    high = max(high, x[at + i]);
  }
  least[thread] = low;
  most[thread] = high;
  for (uint half_size = 32; half_size > 0; half_size /= 2) {
    barrier();
    if (thread < half_size) {
      least[thread] = min(least[thread], least[thread + half_size]);
      most[thread] = max(most[thread], most[thread + half_size]);
    }
  }
  barrier();
}

void main() {
  const uint head = gl_WorkGroupID.x, item = c.items_first + gl_WorkGroupID.y * 3;
  const uint thread = gl_LocalInvocationID.x;
  const uint at = c.x_first + (items[item] * c.heads + head) * c.dim;
  const uint row = items[item + 1] * c.block_rows + head * c.head_rows + items[item + 2];
  const uint to = c.cache_first + row * row_words(c.dim);
  if (KIND == FLOATS) {
    for (uint i = thread; i < c.dim; i += 64) cache[to + i] = floatBitsToUint(x[at + i]);
  } else if (KIND == HALVES) {
    for (uint i = thread; i < c.dim / 2; i += 64) {
      cache[to + i] = float_to_half(x[at + 2 * i]) | float_to_half(x[at + 2 * i + 1]) << 16;
    }
  } else {
    find_range(at);
    const float span = most[0] - least[0];
    const bool bad = unfit != 0 || !is_finite(span);
    const float zero = bad ? uintBitsToFloat(0x7FC00000u) : least[0];
    // Where the quotient would not be finite, all are the zero.
    const bool none = bad || span <= 255.0 * 2.938736e-39;
    const float inverse = none ? 0.0 : 255.0 / span;
    for (uint i = thread; i < c.dim / 4; i += 64) {
      uint word = 0;
      for (uint j = 0; j < 4; ++j) {
        const float code = none ? 0.0 : roundEven((x[at + 4 * i + j] - zero) * inverse);
        word |= uint(clamp(code, 0.0, 255.0)) << 8 * j;
      }
      cache[to + i] = word;
    }
    if (thread == 0) {
      cache[to + c.dim / 4] = floatBitsToUint(none ? 0.0 : span / 255.0);
      cache[to + c.dim / 4 + 1] = floatBitsToUint(zero);
    }
  }
}
