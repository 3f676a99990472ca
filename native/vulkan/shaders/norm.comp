// rms_norm and layer_norm, whose results may be codes: a workgroup for each row.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const bool CENTRED = false;  // layer_norm
layout(constant_id = 1) const bool HAS_BIAS = false;
layout(constant_id = 2) const bool TO_CODES = false;  // rows are whole words then

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Weight { float weight[]; };
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(binding = 3) writeonly buffer YCodes { uint y_codes[]; };

layout(push_constant) uniform Constants {
  uint rows, cols, x_first, weight_first, bias_first, y_first;
  float eps, inverse_out_scale;
  int out_zero;
} c;

#include "common.glsl"
#include "activations.glsl"
#include "codes.glsl"

shared float sums[256];

float sum_of_all(float own) {
  const uint thread = gl_LocalInvocationID.x;
  barrier();
  sums[thread] = own;
  for (uint half_size = 128; half_size > 0; half_size /= 2) {
    barrier();
    if (thread < half_size) sums[thread] += sums[thread + half_size];
  }
  barrier();
  return sums[0];
}

float result_at(uint column, float number, float inverse) {
  const float result = number * inverse * weight[c.weight_first + column];
  return HAS_BIAS ? result + bias[c.bias_first + column] : result;
}

void main() {
  const uint row = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  const uint thread = gl_LocalInvocationID.x;
  if (row >= c.rows) return;
  const uint at = c.x_first + row * c.cols;
  float mean = 0.0;
  if (CENTRED) {
    for (uint i = thread; i < c.cols; i += 256) mean += x[at + i];
    mean = sum_of_all(mean) / float(c.cols);
  }
  float squares = 0.0;
  for (uint i = thread; i < c.cols; i += 256) {
    const float off = x[at + i] - mean;
    squares = fma(off, off, squares);
  }
  const float inverse = 1.0 / sqrt(sum_of_all(squares) / float(c.cols) + c.eps);
  for (uint i = thread; i < c.cols / (TO_CODES ? 4 : 1); i += 256) {
    if (!TO_CODES) {
      y[c.y_first + row * c.cols + i] = result_at(i, x[at + i] - mean, inverse);
      continue;
    }
    uint codes = 0;
    for (uint j = 0; j < 4; ++j) {
      const uint column = i * 4 + j;
      const float result = result_at(column, x[at + column] - mean, inverse);
      codes |= code_of(result * c.inverse_out_scale, c.out_zero) << 8 * j;
    }
    y_codes[c.y_first + row * c.cols / 4 + i] = codes;
  }
}
