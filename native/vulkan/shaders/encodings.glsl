// Scales of packed matrices for whole chunks of 32 columns: see PackedMatrix in
// native/kernels/kernels.h. `w`, `c.cols` and Matrix come before it.
layout(constant_id = 0) const uint ENCODING = 2;
layout(constant_id = 10) const uint GROUP = 32;  // columns
const uint Q4 = 2, Q8 = 3, LPBQ4 = 4, Q4_MIN = 5, Q4_OFFSET = 6, Q8_OFFSET = 7, Q4_STEPS = 9;
const bool EIGHT_BITS = ENCODING == Q8 || ENCODING == Q8_OFFSET;
const bool HAS_OFFSETS = ENCODING == Q4_MIN || ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET;
// What nibbles are above their numbers; of bytes the sign bit says the same.
const int NIBBLES_ZERO = EIGHT_BITS || ENCODING == Q4_MIN ? 0 : 8;

vec4 halves_at(uint at) {
  const uint a = w[at], b = w[at + 1];
  return vec4(half_of(a, 0), half_of(a, 1), half_of(b, 0), half_of(b, 1));
}

vec4 floats_at(uint at) {
  return vec4(uintBitsToFloat(w[at]), uintBitsToFloat(w[at + 1]), uintBitsToFloat(w[at + 2]),
              uintBitsToFloat(w[at + 3]));
}

// Of four rows of a tile: those from 4 * quad on.
void read_scales(Matrix m, uint tile, uint chunk, uint quad, out vec4 scale, out vec4 offset) {
  const uint groups = c.cols / GROUP, group = chunk * 32 / GROUP;
  const uint at = (tile * groups + group) * 16 + quad * 4;
  offset = vec4(0.0);
  if (ENCODING == Q4_STEPS) {
    const uint in_run = 1024 / GROUP, runs = (c.cols + 1023) / 1024, run = group / in_run;
    const uint begin = m.scales + tile * (runs * 16 + groups * 4) + run * (16 + in_run * 4);
    const int multiples = int(w[begin + 16 + (group - run * in_run) * 4 + quad]);
    scale = vec4(bitfieldExtract(multiples, 0, 8), bitfieldExtract(multiples, 8, 8),
                 bitfieldExtract(multiples, 16, 8), bitfieldExtract(multiples, 24, 8)) *
            floats_at(begin + quad * 4);
  } else {
    scale = halves_at(m.scales + at / 2);
  }
  if (ENCODING == Q4_MIN) offset = halves_at(m.second + at / 2);
  if (ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET) offset = floats_at(m.second + at);
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
