// Reads packed matrices as they lie in the file: see PackedMatrix in native/kernels/kernels.h.
// The bindings codes, scales and second, and `matrix` among the push constants, come before it.
layout(constant_id = 0) const uint ENCODING = 0;
const uint F32 = 0, F16 = 1, Q4 = 2, Q8 = 3, LPBQ4 = 4, Q4_MIN = 5, Q4_OFFSET = 6, Q8_OFFSET = 7,
           Q4_STEPS = 9, Q5 = 10, Q5_MIN = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14;
const bool FLOATS = ENCODING == F32 || ENCODING == F16;
const bool FIVE_BITS = ENCODING == Q5 || ENCODING == Q5_MIN || ENCODING == Q5_K;
const bool SIX_BITS = ENCODING == Q6_K;
const bool EIGHT_BITS = ENCODING == Q8 || ENCODING == Q8_OFFSET;
const bool HAS_MINIMA = ENCODING == Q4_K || ENCODING == Q5_K;  // of super-blocks
// Columns that are read at once.
const uint UNIT = FLOATS ? 1u : EIGHT_BITS || FIVE_BITS || SIX_BITS ? 4u : 8u;
const bool HAS_NO_ZERO = HAS_MINIMA || ENCODING == Q4_MIN || ENCODING == Q5_MIN;
const float ZERO = EIGHT_BITS ? 128.0 : HAS_NO_ZERO ? 0.0 : SIX_BITS ? 32.0 : FIVE_BITS ? 16.0 : 8.0;
const uint RUN_COLUMNS = 1024, SUPERBLOCK = 256;

#include "packed_bits.glsl"

// Weights are q * scale + offset.
struct Unit {
  float q[8];
  float scale, offset;
};

float step_scale(uint tile, uint row, uint group) {
  const uint in_run = RUN_COLUMNS / matrix.group, groups = matrix.cols / matrix.group;
  const uint runs = (matrix.cols + RUN_COLUMNS - 1) / RUN_COLUMNS, run = group / in_run;
  const uint tile_words = (runs * 4 + groups) * 4;
  const uint at = matrix.scales_first + tile * tile_words + run * (16 + in_run * 4);
  const uint number = (group - run * in_run) * 16 + row;
  const uint word = scales[at + 16 + number / 4];
  const int multiple = bitfieldExtract(int(word), int(number % 4) * 8, 8);
  return float(multiple) * uintBitsToFloat(scales[at + row]);
}

// Codes of a row's four columns of five or six bits, a byte each.
uint packed_codes(uint tile, uint row, uint number) {
  const uint lines = FIVE_BITS ? 5 : 3, fours = FIVE_BITS ? 8 : 4, four = number % fours;
  const uint steps = matrix.cols / (4 * fours);
  const uint at = matrix.codes_first + (tile * steps + number / fours) * lines * 16 + row;
  if (four < lines) return codes[at + four * 16] & (FIVE_BITS ? 0x1F1F1F1Fu : 0x3F3F3F3Fu);
  const uint l0 = codes[at], l1 = codes[at + 16], l2 = codes[at + 32];
  if (SIX_BITS) return SPARE_SIX(l0, l1, l2);
  const uint l3 = codes[at + 48], l4 = codes[at + 64];
  return SPARE_FIVE(four - 5, l0, l1, l2, l3, l4);
}

uint byte_of(uint number, uint which) { return number >> 8 * which & 255u; }

// Scale and offset of a super-block's group, which are whole numbers times steps.
vec2 superblock_scale(uint tile, uint row, uint column) {
  const uint words = SIX_BITS ? 72 : 64, blocks = matrix.cols / SUPERBLOCK, group = column % SUPERBLOCK / matrix.group;
  const uint at = matrix.scales_first + (tile * blocks + column / SUPERBLOCK) * words;
  const float scale_step = half_of(scales[at + row / 2], row % 2);
  if (SIX_BITS) {
    const uint word = scales[at + 8 + group * 4 + row / 4];
    return vec2(float(bitfieldExtract(int(word), int(row % 4) * 8, 8)) * scale_step, 0.0);
  }
  const uint line = at + 16 + group % 4 * 4 + row / 4, upper = group / 4;
  const uint high = byte_of(scales[line + 32], row % 4) >> 2 * upper;
  const uint scale = byte_of(scales[line], row % 4) >> 4 * upper & 15u | (high & 3u) << 4;
  const uint least = byte_of(scales[line + 16], row % 4) >> 4 * upper & 15u | (high >> 4 & 3u) << 4;
  return vec2(float(scale) * scale_step, -float(least) * half_of(scales[at + 8 + row / 2], row % 2));
}

Unit read_unit(uint tile, uint row, uint number) {
  Unit unit;
  unit.scale = 1.0;
  unit.offset = 0.0;
  if (FLOATS) {
    const uint at = (tile * matrix.cols + number) * 16 + row;
    unit.q[0] = ENCODING == F32 ? uintBitsToFloat(codes[matrix.codes_first + at])
                                : half_of(codes[matrix.codes_first + at / 2], at % 2);
    return unit;
  }
  const bool is_packed = FIVE_BITS || SIX_BITS;
  const uint word = is_packed ? packed_codes(tile, row, number)
                              : codes[matrix.codes_first + (tile * (matrix.cols / UNIT) + number) * 16 + row];
  for (int j = 0; j < 4; ++j) {
    if (EIGHT_BITS || is_packed) {
      unit.q[j] = float(word >> 8 * j & 255u) - ZERO;
    } else {
      unit.q[j] = float(word >> 8 * j & 15u) - ZERO;
      unit.q[j + 4] = float(word >> 8 * j + 4 & 15u) - ZERO;
    }
  }
  if (HAS_MINIMA || SIX_BITS) {
    const vec2 both = superblock_scale(tile, row, number * UNIT);
    unit.scale = both.x;
    unit.offset = both.y;
    return unit;
  }
  const uint group = number * UNIT / matrix.group;
  const uint at = (tile * (matrix.cols / matrix.group) + group) * 16 + row;
  if (ENCODING == Q4_STEPS)
    unit.scale = step_scale(tile, row, group);
  else
    unit.scale = half_of(scales[matrix.scales_first + at / 2], at % 2);
  if (ENCODING == Q4_MIN || ENCODING == Q5_MIN) unit.offset = half_of(second[matrix.second_first + at / 2], at % 2);
  if (ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET)
    unit.offset = uintBitsToFloat(second[matrix.second_first + at]);
  return unit;
}

// What a row's results are multiplied with.
float row_factor(uint tile, uint row) {
  if (ENCODING != LPBQ4) return 1.0;
  return uintBitsToFloat(second[matrix.second_first + tile * 16 + row]);
}
