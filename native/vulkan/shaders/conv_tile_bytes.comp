// Convolutions and layers in codes, by products of four bytes at once.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "conv_call.glsl"
#include "dot.glsl"
#include "conv_tile.glsl"
