// y = activation(x * wT * x_scale + bias): a tile of 16 rows of w and 4 tokens for each workgroup,
// whose threads share the columns out, 8 to a row.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 128) in;

layout(constant_id = 1) const uint ACTIVATION = 0;
layout(constant_id = 2) const bool HAS_BIAS = false;
layout(constant_id = 3) const bool HAS_X_SCALES = false;  // x are codes, with a scale for each token

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Codes { uint codes[]; };
layout(binding = 2) readonly buffer Scales { uint scales[]; };
layout(binding = 3) readonly buffer Second { uint second[]; };
layout(binding = 4) readonly buffer Bias { float bias[]; };
layout(binding = 5) readonly buffer XScales { float x_scales[]; };
layout(binding = 6) writeonly buffer Y { float y[]; };

// rows: of this dispatch, whose first is the row `begin` of the result.
layout(push_constant) uniform Constants {
  uint cols, group, codes_first, scales_first, second_first;
  uint rows, begin, all_rows, tokens, x_first, bias_first, x_scales_first, y_first;
} matrix;

#include "common.glsl"
#include "activations.glsl"
#include "matrix.glsl"

const uint TOKENS = 4, SLICES = 8;
shared float sums[SLICES][16][TOKENS];

void main() {
  const uint tile = gl_WorkGroupID.x, first = gl_WorkGroupID.y * TOKENS;
  const uint row = gl_LocalInvocationID.x % 16, slice = gl_LocalInvocationID.x / 16;
  float sum[TOKENS] = float[TOKENS](0.0, 0.0, 0.0, 0.0);
  for (uint number = slice; number < matrix.cols / UNIT; number += SLICES) {
    const Unit unit = read_unit(tile, row, number);
    for (uint t = 0; t < TOKENS; ++t) {
      const uint token = min(first + t, matrix.tokens - 1);
      const uint at = matrix.x_first + token * matrix.cols + number * UNIT;
      float part = 0.0, total = 0.0;
      for (uint j = 0; j < UNIT; ++j) {
        const float number_of_x = x[at + j];
        part += number_of_x * unit.q[j];
        total += number_of_x;
      }
      sum[t] += part * unit.scale + total * unit.offset;
    }
  }
  for (uint t = 0; t < TOKENS; ++t) sums[slice][row][t] = sum[t];
  barrier();
  const uint out_row = tile * 16 + row, token = first + slice;
  if (slice >= TOKENS || token >= matrix.tokens || out_row >= matrix.rows) return;
  float result = 0.0;
  for (uint s = 0; s < SLICES; ++s) result += sums[s][row][slice];
  result *= row_factor(tile, row);
  if (HAS_X_SCALES) result *= x_scales[matrix.x_scales_first + token];
  if (HAS_BIAS) result += bias[matrix.bias_first + matrix.begin + out_row];
  y[matrix.y_first + token * matrix.all_rows + matrix.begin + out_row] = activated(ACTIVATION, result);
}
