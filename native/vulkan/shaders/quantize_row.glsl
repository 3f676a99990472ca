// What shaders that round tokens share: a workgroup of 256 threads for each.
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const uint DIGITS = 1;
layout(constant_id = 1) const uint LARGEST = 127;
layout(constant_id = 2) const bool HAS_NORM = false;
// Words of four columns that a thread has, at most; it keeps them until they are rounded.
layout(constant_id = 3) const uint OWN_WORDS = 1;

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) writeonly buffer Codes { uint codes[]; };  // [tokens][DIGITS][cols]
layout(binding = 2) writeonly buffer Scales { float scales[]; };
layout(binding = 3) readonly buffer Norm { vec4 norm[]; };

layout(push_constant) uniform Constants {
  uint cols, x_first, codes_first, scales_first, norm_first;
  float eps;
} c;

#include "row_sums.glsl"
#include "quantized_row.glsl"

uint word_of(uint i) { return i * 256 + gl_LocalInvocationID.x; }

vec4 own_words[OWN_WORDS];  // with the norm's weights

// What is read does not hang on a condition, so that all of it is on its way at once.
RowScale find_scale() {
  const uint words = c.cols / 4, first = c.x_first / 4 + gl_WorkGroupID.x * words;
  vec4 weights[OWN_WORDS];
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) own_words[i] = x[first + min(word_of(i), words - 1)];
  if (HAS_NORM) {
    [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i)
      weights[i] = norm[c.norm_first / 4 + min(word_of(i), words - 1)];
  }
  float squares = 0.0, largest = 0.0;
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) {
    if (word_of(i) >= words) own_words[i] = vec4(0.0);
    squares += squares_of(own_words[i]);
    if (HAS_NORM) own_words[i] *= weights[i];
    largest = max(largest, largest_of(abs(own_words[i])));
  }
  const vec2 all = sum_and_largest(0, squares, largest);
  const RowScale row = row_scale(all.x, all.y);
  if (gl_LocalInvocationID.x == 0) scales[c.scales_first + gl_WorkGroupID.x] = row.scale;
  return row;
}
