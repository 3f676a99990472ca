// The layer of an expert that a token has chosen: a tile of 16 of its rows for each workgroup, whose
// threads share the columns out, 8 to a row. A *pair* is a token and one of its choices.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 128) in;

layout(constant_id = 1) const bool HAS_X_SCALES = false;  // x are codes, with a scale for each row

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Codes { uint codes[]; };
layout(binding = 2) readonly buffer Scales { uint scales[]; };
layout(binding = 3) readonly buffer Second { uint second[]; };
layout(binding = 4) readonly buffer Chosen { uint chosen[]; };
layout(binding = 5) readonly buffer XScales { float x_scales[]; };
layout(binding = 6) writeonly buffer Y { float y[]; };

// begin, end: the tiles of this dispatch, among those of all experts; shared_by: how many pairs have
// the same row of x.
layout(push_constant) uniform Constants {
  uint cols, group, codes_first, scales_first, second_first;
  uint begin, end, tiles_each, shared_by, x_first, chosen_first, x_scales_first, y_first;
} matrix;

#include "common.glsl"
#include "matrix.glsl"

const uint SLICES = 8;
shared float sums[SLICES][16];

void main() {
  const uint pair = gl_WorkGroupID.y, x_row = pair / matrix.shared_by;
  const uint of_all = chosen[matrix.chosen_first + pair] * matrix.tiles_each + gl_WorkGroupID.x;
  if (of_all < matrix.begin || of_all >= matrix.end) return;  // another dispatch's
  const uint tile = of_all - matrix.begin;
  const uint row = gl_LocalInvocationID.x % 16, slice = gl_LocalInvocationID.x / 16;
  float sum = 0.0;
  for (uint number = slice; number < matrix.cols / UNIT; number += SLICES) {
    const Unit unit = read_unit(tile, row, number);
    const uint at = matrix.x_first + x_row * matrix.cols + number * UNIT;
    float part = 0.0, total = 0.0;
    for (uint j = 0; j < UNIT; ++j) {
      part += x[at + j] * unit.q[j];
      total += x[at + j];
    }
    sum += part * unit.scale + total * unit.offset;
  }
  sums[slice][row] = sum;
  barrier();
  if (slice > 0) return;
  float result = 0.0;
  for (uint s = 0; s < SLICES; ++s) result += sums[s][row];
  result *= row_factor(tile, row);
  if (HAS_X_SCALES) result *= x_scales[matrix.x_scales_first + x_row];
  y[matrix.y_first + (pair * matrix.tiles_each + gl_WorkGroupID.x) * 16 + row] = result;
}
