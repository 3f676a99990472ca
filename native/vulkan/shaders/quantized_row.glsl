// A row of numbers as whole ones with one scale, after a norm if there is one: see QuantizedRows in
// native/kernels/kernels.h. What a norm divides all numbers by only changes the scale, and so is not
// needed before: one pass finds both.
//
// `c.cols`, `c.eps`, HAS_NORM and LARGEST come before it, and row_sums.glsl.
struct RowScale {
  float inverse, scale;
};

// From the sum of squares of the numbers and the largest of them, with the norm's weights.
RowScale row_scale(float squares, float size) {
  const float most = float(LARGEST), length = HAS_NORM ? 1.0 / sqrt(squares / float(c.cols) + c.eps) : 1.0;
  // Where the quotient would not be finite, all is zero.
  const bool none = size <= most * 2.938736e-39;
  return RowScale(none ? 0.0 : most / size, none ? 0.0 : size * length / most);
}

float squares_of(vec4 v) { return fma(v.x, v.x, fma(v.y, v.y, fma(v.z, v.z, v.w * v.w))); }

uint bytes_of(ivec4 code) {
  return uint(code.x & 255) | uint(code.y & 255) << 8 | uint(code.z & 255) << 16 | uint(code.w & 255) << 24;
}

// Of codes of 16 bits; the lowest byte of a code is the low digit, with its sign.
ivec4 high_digits(ivec4 code) { return code + 128 >> 8; }
