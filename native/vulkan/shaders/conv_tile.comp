// Convolutions and layers in floats, and those in codes on devices without products of bytes.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "conv_call.glsl"

int dot4(uint a, uint b) {
  int sum = 0;
  [[unroll]] for (int i = 0; i < 4; ++i)
    sum += bitfieldExtract(int(a), 8 * i, 8) * bitfieldExtract(int(b), 8 * i, 8);
  return sum;
}

#include "conv_tile.glsl"
