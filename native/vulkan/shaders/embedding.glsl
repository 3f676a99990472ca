// Rows of a packed matrix by number: a workgroup for each. Of a table in several parts, a dispatch
// does the rows that its part has.
layout(local_size_x = 128) in;

#include "turns.glsl"

layout(binding = 0) readonly buffer Ids { int ids[]; };
layout(binding = 1) readonly buffer Codes { uint codes[]; };
layout(binding = 2) readonly buffer Scales { uint scales[]; };
layout(binding = 3) readonly buffer Second { uint second[]; };
layout(binding = 4) IN_TURNS writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants {
  uint cols, group, codes_first, scales_first, second_first;
  uint rows, begin, ids_first, y_first;
} matrix;

#include "common.glsl"
#include "matrix.glsl"

void main() {
  const uint token = gl_WorkGroupID.x, id = uint(ids[matrix.ids_first + token]);
  if (id >= matrix.begin && id < matrix.begin + matrix.rows) {
    const uint tile = (id - matrix.begin) / 16, row = (id - matrix.begin) % 16;
    const float factor = row_factor(tile, row);
    for (uint number = gl_LocalInvocationID.x; number < matrix.cols / UNIT; number += 128) {
      const Unit unit = read_unit(tile, row, number);
      for (uint j = 0; j < UNIT; ++j) {
        y[matrix.y_first + token * matrix.cols + number * UNIT + j] =
            given((unit.q[j] * unit.scale + unit.offset) * factor);
      }
    }
  }
}
