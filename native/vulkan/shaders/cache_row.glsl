// Writes a row of a cache from numbers that lie in `row`, by a workgroup of 64 threads. `cache` and
// cache.glsl come before it.
shared float row[512];
shared float least[64];
shared float most[64];
shared uint unfit;  // whether the row holds something that is not finite

bool is_finite(float x) { return (floatBitsToUint(x) & 0x7F800000u) != 0x7F800000u; }

void find_range(uint dim) {
  const uint thread = gl_LocalInvocationID.x;
  if (thread == 0) unfit = 0;
  barrier();
  float low = row[0], high = low;
  for (uint i = thread; i < dim; i += 64) {
    if (!is_finite(row[i])) unfit = 1;
    low = min(low, row[i]);
    high = max(high, row[i]);
  }
  least[thread] = low;
  most[thread] = high;
  for (uint half_size = 32; half_size > 0; half_size /= 2) {
    barrier();
    if (thread < half_size) {
      least[thread] = min(least[thread], least[thread + half_size]);
      most[thread] = max(most[thread], most[thread + half_size]);
    }
  }
  barrier();
}

void write_row(uint dim, uint to) {
  const uint thread = gl_LocalInvocationID.x;
  if (KIND == FLOATS) {
    for (uint i = thread; i < dim; i += 64) cache_store(to + i, floatBitsToUint(row[i]));
  } else if (KIND == HALVES) {
    for (uint i = thread; i < dim / 2; i += 64)
      cache_store(to + i, float_to_half(row[2 * i]) | float_to_half(row[2 * i + 1]) << 16);
  } else {
    find_range(dim);
    const float span = most[0] - least[0];
    const bool bad = unfit != 0 || !is_finite(span);
    const float zero = bad ? uintBitsToFloat(0x7FC00000u) : least[0];
    // Where the quotient would not be finite, all are the zero.
    const bool none = bad || span <= 255.0 * 2.938736e-39;
    const float inverse = none ? 0.0 : 255.0 / span;
    for (uint i = thread; i < dim / 4; i += 64) {
      uint word = 0;
      for (uint j = 0; j < 4; ++j) {
        const float code = none ? 0.0 : roundEven((row[4 * i + j] - zero) * inverse);
        word |= uint(clamp(code, 0.0, 255.0)) << 8 * j;
      }
      cache_store(to + i, word);
    }
    if (thread == 0) {
      cache_store(to + dim / 4, floatBitsToUint(none ? 0.0 : span / 255.0));
      cache_store(to + dim / 4 + 1, floatBitsToUint(zero));
    }
  }
}
