// The second step, where all tokens may be chosen.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

#include "sample.glsl"
#include "sample_draw.glsl"

float mass_of(uint block, Best best) {
  const Block own = blocks[own_block(block)];
  return own.sum * power(own.largest, best.number, inverse_temperature);
}

bool is_kept(float number, uint token) { return true; }

void main() {
  read_temperature();
  const Best best = best_of_blocks();
  uint token = best.token;
  if (inverse_temperature > 0.0) token = drawn_token(best);
  give(token, best);
}
