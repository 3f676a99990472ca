// Scales of packed matrices for whole chunks of 32 columns: see PackedMatrix in
// native/kernels/kernels.h. `w`, `w4`, `c.cols` and Matrix come before it.
layout(constant_id = 0) const uint ENCODING = 2;
layout(constant_id = 10) const uint GROUP = 32;  // columns
const uint Q4 = 2, Q8 = 3, LPBQ4 = 4, Q4_MIN = 5, Q4_OFFSET = 6, Q8_OFFSET = 7, Q4_STEPS = 9;
const bool EIGHT_BITS = ENCODING == Q8 || ENCODING == Q8_OFFSET;
const bool HAS_OFFSETS = ENCODING == Q4_MIN || ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET;
// What nibbles are above their numbers; of bytes the sign bit says the same.
const int NIBBLES_ZERO = EIGHT_BITS || ENCODING == Q4_MIN ? 0 : 8;

// The scales of four rows of a tile, those from 4 * quad on, as they lie in memory.
struct RawScales {
  uvec4 scales;  // words of halves, or floats that multiples belong to
  uvec4 second;  // the multiples' word, words of halves, or floats
};

uvec4 words_at(uint at) { return uvec4(w[at], w[at + 1], w[at + 2], w[at + 3]); }

RawScales raw_scales(Matrix m, uint tile, uint chunk, uint quad) {
  const uint groups = c.cols / GROUP, group = chunk * 32 / GROUP;
  const uint at = (tile * groups + group) * 16 + quad * 4;
  RawScales raw = RawScales(uvec4(0), uvec4(0));
  if (ENCODING == Q4_STEPS) {
    const uint in_run = 1024 / GROUP, runs = (c.cols + 1023) / 1024, run = group / in_run;
    const uint begin = m.scales + tile * (runs * 16 + groups * 4) + run * (16 + in_run * 4);
    raw.second.x = w[begin + 16 + (group - run * in_run) * 4 + quad];
    raw.scales = w4[begin / 4 + quad];
  } else {
    raw.scales.xy = uvec2(w[m.scales + at / 2], w[m.scales + at / 2 + 1]);
  }
  if (ENCODING == Q4_MIN) raw.second.xy = uvec2(w[m.second + at / 2], w[m.second + at / 2 + 1]);
  if (ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET) raw.second = words_at(m.second + at);
  return raw;
}

vec4 halves_of(uvec2 words) {
  return vec4(half_of(words.x, 0), half_of(words.x, 1), half_of(words.y, 0), half_of(words.y, 1));
}

void unpack_scales(RawScales raw, out vec4 scale, out vec4 offset) {
  offset = vec4(0.0);
  if (ENCODING == Q4_STEPS) {
    const int multiples = int(raw.second.x);
    scale = vec4(bitfieldExtract(multiples, 0, 8), bitfieldExtract(multiples, 8, 8),
                 bitfieldExtract(multiples, 16, 8), bitfieldExtract(multiples, 24, 8)) *
            uintBitsToFloat(raw.scales);
  } else {
    scale = halves_of(raw.scales.xy);
  }
  if (ENCODING == Q4_MIN) offset = halves_of(raw.second.xy);
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
  if (ENCODING == Q4_MIN) result.y = half_of(w[m.second + at / 2], at % 2);
  if (ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET) result.y = uintBitsToFloat(w[m.second + at]);
  return result;
}
