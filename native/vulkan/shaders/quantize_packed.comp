// Tokens as signed bytes, four to a word. Codes of 16 bits are two bytes, 256 * high + low.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "quantize_row.glsl"

void main() {
  const uint words = c.cols / 4, to = c.codes_first + gl_WorkGroupID.x * DIGITS * words;
  const RowScale row = find_scale();
  for (uint word = gl_LocalInvocationID.x; word < words; word += 256) {
    const ivec4 code = ivec4(roundEven(with_norm(raw_at(word), word) * row.inverse));
    codes[to + word] = bytes_of(DIGITS == 2 ? high_digits(code) : code);
    if (DIGITS == 2) codes[to + words + word] = bytes_of(code);
  }
}
