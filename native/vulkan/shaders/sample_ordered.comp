#version 450
#extension GL_GOOGLE_include_directive : require
#include "sample_ordered.glsl"
