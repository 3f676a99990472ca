// y = x * wT + bias for one token: see linear_bytes.glsl. The row is normed and rounded here, by each
// workgroup for itself: that is cheaper than waiting for another dispatch. A workgroup does one tile
// after the other, so that it rounds once, and the next weights are always on their way.
layout(constant_id = 3) const bool HAS_NORM = false;
layout(constant_id = 7) const uint X_WORDS = 1;  // of four columns
layout(constant_id = 9) const uint LARGEST = 127;

#include "linear_bytes.glsl"
#include "row_sums.glsl"
#include "quantized_row.glsl"

const uint OWN_WORDS = (X_WORDS + 255) / 256;  // of a thread
const uint MATRICES = PRODUCT > 0 ? 2 : 1;     // whose tiles are done together
// Pieces of a tile that a thread has: one after the other, of each matrix in turn.
const uint STEPS = (X_WORDS + TOGETHER * 8 - 1) / (TOGETHER * 8), PIECES = STEPS * MATRICES;
// Of how many the weights are on their way, a divisor of them.
layout(constant_id = 11) const uint AHEAD = 1;

shared uint x_words[DIGITS][X_WORDS];
float x_scale;

uint x_word(uint token, uint digit, uint word) { return x_words[digit][word]; }

vec4 norm_words[OWN_WORDS];

// What is read does not hang on a condition, so that all of it is on its way at once.
uint own_word(uint i) { return min(i * 256 + gl_LocalInvocationID.x, X_WORDS - 1); }

void read_norm() {
  if (!HAS_NORM) return;
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) norm_words[i] = aux4[c.aux_first / 4 + own_word(i)];
}

uvec4 own_words[OWN_WORDS];
uint own_residual;

void look_at_row() {
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) own_words[i] = x4[c.x_first / 4 + own_word(i)];
}

bool is_row_there() {
  bool all_there = true;
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) all_there = all_there && is_there(own_words[i]);
  return all_there;
}

void look_at_residual(uvec2 place) {
  const uint row = place.y * 16 + gl_LocalInvocationID.x % 16;
  if (HAS_RESIDUAL) own_residual = residual[c.residual_first + min(row, c.matrices[place.x].rows - 1)];
}

void round_row() {
  const uint thread = gl_LocalInvocationID.x;
  vec4 numbers[OWN_WORDS];
  float squares = 0.0, largest = 0.0;
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) numbers[i] = uintBitsToFloat(own_words[i]);
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) {
    if (i * 256 + thread >= X_WORDS) numbers[i] = vec4(0.0);
    squares += squares_of(numbers[i]);
    if (HAS_NORM) numbers[i] *= norm_words[i];
    largest = max(largest, largest_of(abs(numbers[i])));
  }
  const vec2 all = sum_and_largest(0, squares, largest);
  const RowScale row = row_scale(all.x, all.y);
  x_scale = row.scale;
  [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i) {
    const uint word = i * 256 + thread;
    if (word >= X_WORDS) continue;
    const ivec4 code = ivec4(roundEven(numbers[i] * row.inverse));
    x_words[0][word] = bytes_of(DIGITS == 2 ? high_digits(code) : code);
    if (DIGITS == 2) x_words[DIGITS - 1][word] = bytes_of(code);
  }
  barrier();
}

// The matrix and its tile that a tile among all is.
uvec2 place_of(uint tile) {
  const uint which = PRODUCT > 0 ? 0u : uint(tile >= c.tiles_0) + uint(tile >= c.tiles_1);
  return uvec2(which, tile - (which == 0 ? 0 : which == 1 ? c.tiles_0 : c.tiles_1));
}

Piece ahead[AHEAD];

void read_ahead(uvec2 place, uint piece) {
  const uint chunk = min(piece / MATRICES * TOGETHER + gl_LocalInvocationID.x / 4, c.cols / CHUNK - 1);
  ahead[piece % AHEAD] = read_piece(c.matrices[place.x + piece % MATRICES], place.y, chunk);
}

void main() {
  const uint thread = gl_LocalInvocationID.x;
  uint tile = gl_WorkGroupID.x, slot = 0;
  uvec2 place = place_of(tile);
  [[unroll]] for (uint piece = 0; piece < AHEAD; ++piece) read_ahead(place, piece);
  read_norm();
  own_residual = 0;
  AWAIT(look_at_residual(place); look_at_row(), is_there(own_residual) && is_row_there())
  round_row();
  while (tile < c.tiles) {
    const Matrix m = c.matrices[place.x];
    const uint row = place.y * 16 + thread;
    const bool has_row = thread < 16 && row < m.rows;
    precise float sum = uintBitsToFloat(own_residual);
    const uvec2 here = place;
    tile += gl_NumWorkGroups.x;
    const bool has_next = tile < c.tiles;
    if (has_next) {
      place = place_of(tile);
      AWAIT(look_at_residual(place), is_there(own_residual))
    }
    vec4 total[MATRICES];
    [[unroll]] for (uint i = 0; i < MATRICES; ++i) total[i] = vec4(0.0);
    [[unroll]] for (uint piece = 0; piece < PIECES; ++piece) {
      const uint chunk = piece / MATRICES * TOGETHER + thread / 4, later = piece + AHEAD;
      const Piece now = ahead[piece % AHEAD];
      if (later < PIECES)
        read_ahead(here, later);
      else if (has_next)
        read_ahead(place, later - PIECES);
      if (chunk < c.cols / CHUNK) add_piece(now, 0, chunk, total[piece % MATRICES]);
    }
    float result = add_up(slot, total[0]);
    if (PRODUCT > 0) {
      const float right = add_up(1, total[MATRICES - 1]);
      if (has_row)
        result = product_of(finished(m, row, result, x_scale), finished(c.matrices[1], row, right, x_scale));
    } else {
      slot = 1 - slot;
      if (has_row) result = finished(m, row, result, x_scale);
    }
    if (!has_row) continue;
    sum = HAS_RESIDUAL ? sum + result : result;
    y[m.y + row] = given(sum);
  }
}
