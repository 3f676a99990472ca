// Scales of packed matrices for whole chunks of 32 columns: see PackedMatrix in
// native/kernels/kernels.h. `w`, `w4`, `c.cols` and Matrix come before it.
layout(constant_id = 0) const uint ENCODING = 2;
layout(constant_id = 10) const uint GROUP = 32;  // columns
const uint Q4 = 2, Q8 = 3, LPBQ4 = 4, Q4_MIN = 5, Q4_OFFSET = 6, Q8_OFFSET = 7, Q4_STEPS = 9, Q5 = 10,
           Q5_MIN = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14;
const bool EIGHT_BITS = ENCODING == Q8 || ENCODING == Q8_OFFSET;
const bool FIVE_BITS = ENCODING == Q5 || ENCODING == Q5_MIN || ENCODING == Q5_K, SIX_BITS = ENCODING == Q6_K;
const bool HAS_MINIMA = ENCODING == Q4_K || ENCODING == Q5_K;  // of super-blocks
const bool HAS_HALF_OFFSETS = ENCODING == Q4_MIN || ENCODING == Q5_MIN;
const bool HAS_OFFSETS = HAS_HALF_OFFSETS || HAS_MINIMA || ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET;
// What codes are above their numbers; of bytes the sign bit says the same.
const int CODES_ZERO = EIGHT_BITS || HAS_HALF_OFFSETS || HAS_MINIMA ? 0 : SIX_BITS ? 32 : FIVE_BITS ? 16 : 8;

#include "packed_bits.glsl"

// The scales of four rows of a tile, those from 4 * quad on, as they lie in memory.
struct RawScales {
  uvec4 scales;  // words of halves (steps, and those of minima), or floats that multiples belong to
  uvec4 second;  // the multiples' words, words of halves, or floats; the lines of a super-block
};

uvec4 words_at(uint at) { return uvec4(w[at], w[at + 1], w[at + 2], w[at + 3]); }

RawScales raw_scales(Matrix m, uint tile, uint chunk, uint quad) {
  const uint groups = c.cols / GROUP, group = chunk * 32 / GROUP;
  const uint at = (tile * groups + group) * 16 + quad * 4;
  RawScales raw = RawScales(uvec4(0), uvec4(0));
  if (HAS_MINIMA || SIX_BITS) {
    const uint words = SIX_BITS ? 72 : 64, own = chunk % 8;  // of a super-block's eight chunks
    const uint begin = m.scales + (tile * (c.cols / 256) + chunk / 8) * words;
    raw.scales.xy = uvec2(w[begin + quad * 2], w[begin + quad * 2 + 1]);
    if (SIX_BITS) {
      raw.second.xy = uvec2(w[begin + 8 + own * 8 + quad], w[begin + 12 + own * 8 + quad]);
      return raw;
    }
    raw.scales.zw = uvec2(w[begin + 8 + quad * 2], w[begin + 9 + quad * 2]);
    const uint line = begin + 16 + own % 4 * 4 + quad;
    raw.second = uvec4(w[line], w[line + 16], w[line + 32], own / 4);
    return raw;
  }
  if (ENCODING == Q4_STEPS) {
    const uint in_run = 1024 / GROUP, runs = (c.cols + 1023) / 1024, run = group / in_run;
    const uint begin = m.scales + tile * (runs * 16 + groups * 4) + run * (16 + in_run * 4);
    raw.second.x = w[begin + 16 + (group - run * in_run) * 4 + quad];
    raw.scales = w4[begin / 4 + quad];
  } else {
    raw.scales.xy = uvec2(w[m.scales + at / 2], w[m.scales + at / 2 + 1]);
  }
  if (HAS_HALF_OFFSETS) raw.second.xy = uvec2(w[m.second + at / 2], w[m.second + at / 2 + 1]);
  if (ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET) raw.second = words_at(m.second + at);
  return raw;
}

vec4 halves_of(uvec2 words) {
  return vec4(half_of(words.x, 0), half_of(words.x, 1), half_of(words.y, 0), half_of(words.y, 1));
}

vec4 signed_bytes(uint word) {
  const int bytes = int(word);
  return vec4(bitfieldExtract(bytes, 0, 8), bitfieldExtract(bytes, 8, 8), bitfieldExtract(bytes, 16, 8),
              bitfieldExtract(bytes, 24, 8));
}

// `part`: which sixteen columns of the chunk, where these have scales of their own.
void unpack_scales(RawScales raw, uint part, out vec4 scale, out vec4 offset) {
  offset = vec4(0.0);
  if (ENCODING == Q4_STEPS) {
    scale = signed_bytes(raw.second.x) * uintBitsToFloat(raw.scales);
  } else if (SIX_BITS) {
    scale = signed_bytes(raw.second[part]) * halves_of(raw.scales.xy);
  } else if (HAS_MINIMA) {
    const uint upper = raw.second.w, high = raw.second.z >> 2 * upper;
    const uint scales = raw.second.x >> 4 * upper & 0x0F0F0F0Fu | (high & 0x03030303u) << 4;
    const uint minima = raw.second.y >> 4 * upper & 0x0F0F0F0Fu | (high >> 4 & 0x03030303u) << 4;
    scale = signed_bytes(scales) * halves_of(raw.scales.xy);
    offset = signed_bytes(minima) * -halves_of(raw.scales.zw);
  } else {
    scale = halves_of(raw.scales.xy);
  }
  if (HAS_HALF_OFFSETS) offset = halves_of(raw.second.xy);
  if (ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET) offset = uintBitsToFloat(raw.second);
}

// What a row's results are multiplied with.
float row_factor(Matrix m, uint tile, uint row) {
  return ENCODING == LPBQ4 ? uintBitsToFloat(w[m.second + tile * 16 + row]) : 1.0;
}

// The scale and the offset of one row.
vec2 scale_and_offset(Matrix m, uint tile, uint chunk, uint row) {
  const uint groups = c.cols / GROUP, group = chunk * 32 / GROUP;
  const uint at = (tile * groups + group) * 16 + row;
  vec2 result = vec2(0.0);
  if (ENCODING == Q4_STEPS) {
    const uint in_run = 1024 / GROUP, runs = (c.cols + 1023) / 1024, run = group / in_run;
    const uint begin = m.scales + tile * (runs * 16 + groups * 4) + run * (16 + in_run * 4);
    const int multiples = int(w[begin + 16 + (group - run * in_run) * 4 + row / 4]);
    result.x = float(bitfieldExtract(multiples, int(row % 4) * 8, 8)) * uintBitsToFloat(w[begin + row]);
  } else {
    result.x = half_of(w[m.scales + at / 2], at % 2);
  }
  if (HAS_HALF_OFFSETS) result.y = half_of(w[m.second + at / 2], at % 2);
  if (ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET) result.y = uintBitsToFloat(w[m.second + at]);
  return result;
}
