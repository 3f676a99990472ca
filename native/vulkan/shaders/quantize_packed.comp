// Tokens as signed bytes, four to a word. Codes of 16 bits are two bytes, 256 * high + low.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "quantize_row.glsl"

void main() {
  const uint words = c.cols / 4, to = c.codes_first + gl_WorkGroupID.x * DIGITS * words;
  const RowScale row = find_scale();
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) {
    const uint word = word_of(i);
    if (word >= words) break;
    const ivec4 code = ivec4(roundEven(own_words[i] * row.inverse));
    codes[to + word] = bytes_of(DIGITS == 2 ? high_digits(code) : code);
    if (DIGITS == 2) codes[to + words + word] = bytes_of(code);
  }
}
