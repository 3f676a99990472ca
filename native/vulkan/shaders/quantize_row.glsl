// What shaders that round tokens share: a workgroup of 256 threads for each.
layout(local_size_x = 256) in;

layout(constant_id = 0) const uint DIGITS = 1;
layout(constant_id = 1) const uint LARGEST = 127;
layout(constant_id = 2) const bool HAS_NORM = false;

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Codes { uint codes[]; };  // [tokens][DIGITS][cols]
layout(binding = 2) writeonly buffer Scales { float scales[]; };
layout(binding = 3) readonly buffer Norm { float norm[]; };

layout(push_constant) uniform Constants {
  uint cols, x_first, codes_first, scales_first, norm_first;
  float eps;
} c;

#include "row_sums.glsl"
#include "quantized_row.glsl"

vec4 raw_at(uint word) {
  const uint at = c.x_first + gl_WorkGroupID.x * c.cols + word * 4;
  return vec4(x[at], x[at + 1], x[at + 2], x[at + 3]);
}

vec4 with_norm(vec4 raw, uint word) {
  if (!HAS_NORM) return raw;
  const uint at = c.norm_first + word * 4;
  return raw * vec4(norm[at], norm[at + 1], norm[at + 2], norm[at + 3]);
}

RowScale find_scale() {
  float squares = 0.0, largest = 0.0;
  for (uint word = gl_LocalInvocationID.x; word < c.cols / 4; word += 256) {
    const vec4 raw = raw_at(word);
    squares += squares_of(raw);
    largest = max(largest, largest_of(abs(with_norm(raw, word))));
  }
  const vec2 all = sum_and_largest(0, squares, largest);
  const RowScale row = row_scale(all.x, all.y);
  if (gl_LocalInvocationID.x == 0) scales[c.scales_first + gl_WorkGroupID.x] = row.scale;
  return row;
}
