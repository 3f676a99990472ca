// Codes of 8 bits that stand for (code - zero) * scale, four to a word: see native/kernels/kernels.h.
// activations.glsl comes before it.
uint byte_of(uint word, uint which) { return word >> 8 * which & 255u; }

// To the nearest, halves to even; what is not a number becomes zero.
uint code_of(float ratio, int zero) {
  if (is_no_number(ratio)) return uint(zero);
  return uint(clamp(int(roundEven(clamp(ratio, -512.0, 512.0))) + zero, 0, 255));
}
