// Puts the blocks of keys of attention together: a workgroup for each head of each token.
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;

layout(constant_id = 2) const uint DIM = 64;

#include "turns.glsl"

layout(binding = 0) IN_TURNS readonly buffer Parts { uint parts[]; };
layout(binding = 1) readonly buffer Step { uint numbers[]; };  // as in attention.comp
layout(binding = 2) IN_TURNS writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants {
  uint heads, splits, window, parts_first, step_first, y_first;
} c;

#include "joined.glsl"

const uint BLOCK = 256, TOGETHER = 4;
uvec4 looked_at[TOGETHER];  // of a split the largest score, the sum of powers, and two values

void look(uint at, uint split, uint last) {
  [[unroll]] for (uint i = 0; i < TOGETHER; ++i) {
    const uint part = c.parts_first + (at * c.splits + min(split + i, last)) * (DIM + 2);
    const uint pair = part + 2 + 2 * gl_LocalInvocationID.x;
    looked_at[i] = uvec4(parts[part], parts[part + 1], parts[pair], parts[pair + 1]);
  }
}

bool are_there() {
  bool all_there = true;
  [[unroll]] for (uint i = 0; i < TOGETHER; ++i) all_there = all_there && is_there(looked_at[i]);
  return all_there;
}

void main() {
  const uint token = gl_WorkGroupID.y, at = token * c.heads + gl_WorkGroupID.x;
  const uint pair = gl_LocalInvocationID.x, own = c.step_first + token * 4;
  const uint keys = numbers[own + 1] + numbers[own + 3];
  const uint from = c.window > 0 && keys > c.window ? keys - c.window : 0, last = (keys - 1) / BLOCK;
  if (pair >= DIM / 2) return;
  Joined joined = nothing_joined();
  for (uint split = from / BLOCK; split <= last; split += TOGETHER) {
    AWAIT(look(at, split, last), are_there())
    [[unroll]] for (uint i = 0; i < TOGETHER; ++i) {
      const vec4 part = uintBitsToFloat(looked_at[i]);
      if (split + i <= last) joined = join(joined, part.x, part.y, part.zw);
    }
  }
  y[c.y_first + at * DIM + 2 * pair] = given(joined.values.x / joined.total);
  y[c.y_first + at * DIM + 2 * pair + 1] = given(joined.values.y / joined.total);
}
