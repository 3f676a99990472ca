// Puts the blocks of keys of attention together: a workgroup for each head of each token.
layout(local_size_x = 256) in;

layout(constant_id = 2) const uint DIM = 64;

#include "turns.glsl"

layout(binding = 0) IN_TURNS readonly buffer Parts { float parts[]; };
layout(binding = 1) readonly buffer Step { uint numbers[]; };  // as in attention.comp
layout(binding = 2) IN_TURNS writeonly buffer Y { float y[]; };

layout(push_constant) uniform Constants {
  uint heads, splits, window, parts_first, step_first, y_first;
  TURN_CONSTANTS
} c;

#include "joined.glsl"

const uint BLOCK = 256;

void main() {
  const uint token = gl_WorkGroupID.y, at = token * c.heads + gl_WorkGroupID.x;
  const uint pair = gl_LocalInvocationID.x, own = c.step_first + token * 4;
  const uint keys = numbers[own + 1] + numbers[own + 3];
  const uint from = c.window > 0 && keys > c.window ? keys - c.window : 0;
  WAIT_FOR_TURN;
  if (pair < DIM / 2) {
    Joined joined = nothing_joined();
    for (uint split = from / BLOCK; split * BLOCK < keys; ++split) {
      const uint part = c.parts_first + (at * c.splits + split) * (DIM + 2);
      joined = join(joined, parts[part], parts[part + 1],
                    vec2(parts[part + 2 + 2 * pair], parts[part + 3 + 2 * pair]));
    }
    y[c.y_first + at * DIM + 2 * pair] = joined.values.x / joined.total;
    y[c.y_first + at * DIM + 2 * pair + 1] = joined.values.y / joined.total;
  }
  END_TURN;
}
