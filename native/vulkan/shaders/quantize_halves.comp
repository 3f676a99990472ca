// Tokens as whole numbers in halves. Codes of 16 bits are two halves, which add up to them.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "quantize_row.glsl"

void main() {
  const uint words = c.cols / 2, to = c.codes_first + gl_WorkGroupID.x * DIGITS * words;
  const RowScale row = find_scale();
  for (uint word = gl_LocalInvocationID.x; word < c.cols / 4; word += 256) {
    const vec4 code = roundEven(with_norm(raw_at(word), word) * row.inverse);
    const vec4 high = DIGITS == 2 ? roundEven(code / 256.0) * 256.0 : code;
    codes[to + 2 * word] = packHalf2x16(high.xy);
    codes[to + 2 * word + 1] = packHalf2x16(high.zw);
    if (DIGITS == 2) {
      codes[to + words + 2 * word] = packHalf2x16(code.xy - high.xy);
      codes[to + words + 2 * word + 1] = packHalf2x16(code.zw - high.zw);
    }
  }
}
