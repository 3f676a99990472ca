// Reads packed matrices as they lie in the file: see PackedMatrix in native/kernels/kernels.h.
// The bindings codes, scales and second, and `matrix` among the push constants, come before it.
layout(constant_id = 0) const uint ENCODING = 0;
const uint F32 = 0, F16 = 1, Q4 = 2, Q8 = 3, LPBQ4 = 4, Q4_MIN = 5, Q4_OFFSET = 6, Q8_OFFSET = 7,
           Q4_STEPS = 9;
const bool FLOATS = ENCODING == F32 || ENCODING == F16;
const bool EIGHT_BITS = ENCODING == Q8 || ENCODING == Q8_OFFSET;
// Columns that are read at once.
const uint UNIT = FLOATS ? 1u : EIGHT_BITS ? 4u : 8u;
const float ZERO = EIGHT_BITS ? 128.0 : ENCODING == Q4_MIN ? 0.0 : 8.0;
const uint RUN_COLUMNS = 1024;

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
  const uint word = codes[matrix.codes_first + (tile * (matrix.cols / UNIT) + number) * 16 + row];
  for (int j = 0; j < 4; ++j) {
    if (EIGHT_BITS) {
      unit.q[j] = float(word >> 8 * j & 255u) - ZERO;
    } else {
      unit.q[j] = float(word >> 8 * j & 15u) - ZERO;
      unit.q[j + 4] = float(word >> 8 * j + 4 & 15u) - ZERO;
    }
  }
  const uint group = number * UNIT / matrix.group;
  const uint at = (tile * (matrix.cols / matrix.group) + group) * 16 + row;
  if (ENCODING == Q4_STEPS)
    unit.scale = step_scale(tile, row, group);
  else
    unit.scale = half_of(scales[matrix.scales_first + at / 2], at % 2);
  if (ENCODING == Q4_MIN) unit.offset = half_of(second[matrix.second_first + at / 2], at % 2);
  if (ENCODING == Q4_OFFSET || ENCODING == Q8_OFFSET)
    unit.offset = uintBitsToFloat(second[matrix.second_first + at]);
  return unit;
}

// What a row's results are multiplied with.
float row_factor(uint tile, uint row) {
  if (ENCODING != LPBQ4) return 1.0;
  return uintBitsToFloat(second[matrix.second_first + tile * 16 + row]);
}
