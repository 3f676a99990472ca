#version 450
#extension GL_GOOGLE_include_directive : require
#define IN_TURN
#include "sample_blocks.glsl"
