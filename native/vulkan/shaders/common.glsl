// What all shaders share. Everything lies in words of 32 bits, so that no device needs more.

// Halves by hand: what the built-in functions do with the smallest ones is left to the driver.
float half_to_float(uint h) {
  const uint size = h & 0x7FFFu;
  uint bits = (size << 13) + (112u << 23);
  if (size >= 0x7C00u) bits += 112u << 23;  // infinite, or no number
  if (size < 0x400u) bits = floatBitsToUint(float(size) * 5.9604644775390625e-8);
  return uintBitsToFloat(bits | (h & 0x8000u) << 16);
}

// To the nearest, halves to even; too large ones become infinite.
uint float_to_half(float x) {
  const uint bits = floatBitsToUint(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return sign | 0x7E00u;
  if (size >= 0x477FF000u) return sign | 0x7C00u;
  if (size >= 0x38800000u)
    return sign | ((size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13);
  return sign | uint(roundEven(uintBitsToFloat(size) * 16777216.0));
}

float half_of(uint word, uint which) {
  return half_to_float(which == 0u ? word & 0xFFFFu : word >> 16);
}

// Drivers need not know what is not a number; it comes through here on all of them.
float exp_of(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u ? x : exp(x); }

// The number of a thread among all, of a grid that may be too long for one dimension.
uint thread_number() {
  return (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x +
         gl_LocalInvocationID.x;
}
