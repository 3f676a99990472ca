// y = x * wT + bias for few tokens that are rounded already: see linear_bytes.glsl. A workgroup has a
// tile. gemm_dot.comp adds up in the same order, so that many tokens have the same bits.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "linear_bytes.glsl"

layout(constant_id = 2) const uint TOKENS = 1;  // of a workgroup

uint x_word(uint token, uint digit, uint word) {
  return x[c.x_first + (token * DIGITS + digit) * (c.cols / 4) + word];
}

// Of four rows, the sums over a thread's columns.
void add_chunks(Matrix m, uint tile, uint first, out vec4 total[TOKENS]) {
  [[unroll]] for (uint t = 0; t < TOKENS; ++t) total[t] = vec4(0.0);
  for (uint chunk = gl_LocalInvocationID.x / 4; chunk < c.cols / CHUNK; chunk += TOGETHER) {
    const Piece piece = read_piece(m, tile, chunk);
    [[unroll]] for (uint t = 0; t < TOKENS; ++t) add_piece(piece, min(first + t, c.tokens - 1), chunk, total[t]);
  }
}

void main() {
  const uint group = gl_WorkGroupID.x, first = gl_WorkGroupID.y * TOKENS;
  const uint which = PRODUCT > 0 ? 0u : uint(group >= c.tiles_0) + uint(group >= c.tiles_1);
  const Matrix m = c.matrices[which];
  const uint tile = group - (which == 0 ? 0 : which == 1 ? c.tiles_0 : c.tiles_1);
  vec4 total[TOKENS], other[TOKENS];
  add_chunks(m, tile, first, total);
  if (PRODUCT > 0) add_chunks(c.matrices[1], tile, first, other);
  const uint row = tile * 16 + gl_LocalInvocationID.x;
  const bool has_row = gl_LocalInvocationID.x < 16 && row < m.rows;
  [[unroll]] for (uint t = 0; t < TOKENS; ++t) {
    float result = add_up(PRODUCT > 0 ? 0 : t % 2, total[t]), right = 0.0;
    if (PRODUCT > 0) right = add_up(1, other[t]);
    if (!has_row || first + t >= c.tokens) continue;
    const float scale = aux[c.aux_first + first + t];
    result = finished(m, row, result, scale);
    if (PRODUCT > 0) result = product_of(result, finished(c.matrices[1], row, right, scale));
    const uint at = (first + t) * m.rows + row;
    precise float sum = result;
    if (HAS_RESIDUAL) sum = uintBitsToFloat(residual[c.residual_first + at]) + result;
    y[m.y + at] = floatBitsToUint(sum);
  }
}
