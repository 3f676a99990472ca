// What layers with activations in signed bytes share: tiles of 16 rows of weights, of which a thread
// has four rows and 32 columns at a time, and so reads whole 16-byte words. Up to three matrices of
// the same columns are done together.
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;

layout(constant_id = 1) const uint ACTIVATION = 0;
layout(constant_id = 4) const bool HAS_BIAS = false;
layout(constant_id = 5) const bool HAS_RESIDUAL = false;
layout(constant_id = 6) const uint PRODUCT = 0;  // of two matrices' results; 0: none, else an op
layout(constant_id = 8) const uint DIGITS = 1;   // of x: codes of 8 bits, or two of 16

#include "turns.glsl"

layout(binding = 0) readonly buffer Weights { uint w[]; };
layout(binding = 0) readonly buffer Weights4 { uvec4 w4[]; };
layout(binding = 1) IN_TURNS readonly buffer X { uint x[]; };
layout(binding = 1) IN_TURNS readonly buffer X4 { uvec4 x4[]; };
layout(binding = 2) readonly buffer Aux { float aux[]; };  // a norm's weights, or tokens' scales
layout(binding = 2) readonly buffer Aux4 { vec4 aux4[]; };
layout(binding = 3) IN_TURNS readonly buffer Residual { uint residual[]; };
layout(binding = 4) IN_TURNS writeonly buffer Y { uint y[]; };

struct Matrix {
  uint codes, scales, second, bias, y, rows;
};
layout(push_constant) uniform Constants {
  uint cols, tokens, x_first, aux_first, residual_first;
  float eps;
  uint tiles_0, tiles_1;  // of the first matrix, and of the first two
  Matrix matrices[3];
  uint tiles;  // of all
} c;

#include "common.glsl"
#include "activations.glsl"
#include "encodings.glsl"
#include "dot.glsl"
#include "products.glsl"

const uint CHUNK = 32;     // columns
const uint TOGETHER = 64;  // chunks that a workgroup does at once
const uint UNITS = EIGHT_BITS ? 8u : SIX_BITS ? 6u : FIVE_BITS ? 5u : 4u;
const uint SCALES = SIX_BITS ? 2 : 1;  // of a chunk
const bool NEEDS_SUMS = CODES_ZERO != 0 || HAS_OFFSETS;

// Of two results in turn, so that nobody need wait to write the next.
shared vec4 partial[2][256];
shared float sums[2][16][17];

// Four bytes of a token: each shader has its own.
uint x_word(uint token, uint digit, uint word);

ivec4 dots(uvec4 rows, uint word) {
  return ivec4(dot4(rows.x, word), dot4(rows.y, word), dot4(rows.z, word), dot4(rows.w, word));
}

// Weights of four rows and 32 columns, as they lie in memory.
struct Piece {
  uvec4 codes[8];  // the first UNITS of them
  RawScales scales;
};

Piece read_piece(Matrix m, uint tile, uint chunk) {
  const uint quad = gl_LocalInvocationID.x % 4;
  const uint at = m.codes / 4 + (tile * (c.cols / CHUNK) + chunk) * UNITS * 4 + quad;
  Piece piece;
  [[unroll]] for (uint u = 0; u < UNITS; ++u) piece.codes[u] = w4[at + u * 4];
  piece.scales = raw_scales(m, tile, chunk, quad);
  return piece;
}

// Four columns of the four rows, a byte each.
uvec4 columns_of(Piece piece, uint four) {
  const uvec4 codes[8] = piece.codes;
  if (EIGHT_BITS) return codes[four % UNITS] ^ 0x80808080u;
  if (FIVE_BITS) {
    if (four < 5) return codes[four % UNITS] & 0x1F1F1F1Fu;
    return SPARE_FIVE(four - 5, codes[0], codes[1], codes[2], codes[3], codes[4]);
  }
  if (SIX_BITS) {
    const uint first = four / 4 * 3;
    if (four % 4 < 3) return codes[(first + four % 4) % UNITS] & 0x3F3F3F3Fu;
    return SPARE_SIX(codes[first], codes[first + 1], codes[first + 2]);
  }
  return four % 2 == 0 ? codes[four / 2] & 0x0F0F0F0Fu : codes[four / 2] >> 4 & 0x0F0F0F0Fu;
}

// Adds a token's products with them.
void add_piece(Piece piece, uint token, uint chunk, inout vec4 total) {
  [[unroll]] for (uint part = 0; part < SCALES; ++part) {
    ivec4 sum = ivec4(0);
    int all = 0;
    [[unroll]] for (uint digit = 0; digit < DIGITS; ++digit) {
      all *= 256;
      sum *= 256;
      [[unroll]] for (uint i = 0; i < 8 / SCALES; ++i) {
        const uint four = part * (8 / SCALES) + i, word = x_word(token, digit, chunk * 8 + four);
        if (NEEDS_SUMS) all += dot4(word, 0x01010101u);
        sum += dots(columns_of(piece, four), word);
      }
    }
    vec4 scale, offset;
    unpack_scales(piece.scales, part, scale, offset);
    total = fma(vec4(sum - CODES_ZERO * all), scale, total);
    if (HAS_OFFSETS) total = fma(vec4(float(all)), offset, total);
  }
}

// What the first 16 threads get is the result of their row.
float add_up(uint slot, vec4 own) {
  const uint thread = gl_LocalInvocationID.x, row = thread % 16, part = thread / 16;
  partial[slot][thread] = own;
  barrier();
  float sum = 0.0;
  for (uint i = 0; i < 4; ++i) sum += partial[slot][(part * 4 + i) * 4 + row / 4][row % 4];
  sums[slot][row][part] = sum;
  barrier();
  float result = 0.0;
  if (thread < 16) {
    for (uint i = 0; i < 16; ++i) result += sums[slot][thread][i];
  }
  return result;
}

float finished(Matrix m, uint row, float sum, float scale) {
  precise float result = sum * row_factor(m, row / 16, row % 16) * scale;
  if (HAS_BIAS) result += uintBitsToFloat(w[m.bias + row]);
  return activated(ACTIVATION, result);
}
