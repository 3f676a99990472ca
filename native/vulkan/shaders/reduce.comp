// Sums, means and extremes over some axes: 8 results for each workgroup, whose threads share out what is
// reduced. Means of codes become codes; their four results to a word are done by one workgroup.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const uint OP = 0;
const uint SUM = 0, MEAN = 1, MOST = 2, LEAST = 3, PRODUCT = 4, MEAN_CODE = 5;

layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants {
  uint kept_shape[4], kept_steps[4], shape[4], steps[4];
  uint count, reduced, x_first, y_first;
  float factor, inverse_out_scale;  // of codes
  int x_zero, out_zero;
} c;

#include "common.glsl"
#include "activations.glsl"
#include "codes.glsl"

const uint RESULTS = 8, SLICES = 32;
shared float parts[SLICES][RESULTS];
shared float errors[SLICES][RESULTS];  // what sums of floats lack
shared int whole_parts[SLICES][RESULTS];
shared uint codes[RESULTS];

uint place(uint number, uint shape[4], uint steps[4]) {
  uint at = 0;
  for (int d = 3; d >= 0; --d) {
    at += number % shape[d] * steps[d];
    number /= shape[d];
  }
  return at;
}

float joined(float a, float b) {
  if (OP == MOST) return a >= b || is_no_number(a) ? a : b;
  if (OP == LEAST) return a <= b || is_no_number(a) ? a : b;
  return a * b;
}

// a + b, and what rounding took of it; infinite sums lack nothing.
vec2 added(float a, float b) {
  precise float sum = a + b;
  precise float back = sum - a;
  precise float lost = (a - (sum - back)) + (b - back);
  return vec2(sum, (floatBitsToUint(lost) & 0x7F800000u) == 0x7F800000u ? 0.0 : lost);
}

void main() {
  const uint lane = gl_LocalInvocationID.x % RESULTS, slice = gl_LocalInvocationID.x / RESULTS;
  const uint number = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * RESULTS + lane;
  const uint first = place(min(number, c.count - 1), c.kept_shape, c.kept_steps);
  const bool adds = OP == SUM || OP == MEAN;
  float own = OP == MOST ? uintBitsToFloat(0xFF800000u) : OP == LEAST ? uintBitsToFloat(0x7F800000u)
                                                      : OP == PRODUCT ? 1.0 : 0.0;
  float lost = 0.0;
  int whole = 0;
  for (uint i = slice; i < c.reduced; i += SLICES) {
    const uint at = first + place(i, c.shape, c.steps);
    if (OP == MEAN_CODE) {
      whole += int(byte_of(x[c.x_first + at / 4], at % 4));
    } else if (adds) {
      const vec2 sum = added(own, uintBitsToFloat(x[c.x_first + at]));
      own = sum.x;
      lost += sum.y;
    } else {
      own = joined(own, uintBitsToFloat(x[c.x_first + at]));
    }
  }
  parts[slice][lane] = own;
  errors[slice][lane] = lost;
  whole_parts[slice][lane] = whole;
  barrier();
  if (slice == 0) {
    for (uint i = 1; i < SLICES; ++i) {
      whole += whole_parts[i][lane];
      if (adds) {
        const vec2 sum = added(own, parts[i][lane]);
        own = sum.x;
        lost += sum.y + errors[i][lane];
      } else {
        own = joined(own, parts[i][lane]);
      }
    }
    own += lost;
    if (OP == MEAN) own /= float(c.reduced);
    if (OP == MEAN_CODE) {
      precise float mean = float(whole - int(c.reduced) * c.x_zero) * c.factor;
      codes[lane] = code_of(mean * c.inverse_out_scale, c.out_zero);
    } else if (number < c.count) {
      y[c.y_first + number] = floatBitsToUint(own);
    }
  }
  if (OP != MEAN_CODE) return;
  barrier();
  if (slice == 0 && lane % 4 == 0 && number < c.count) {
    y[c.y_first + number / 4] =
        codes[lane] | codes[lane + 1] << 8 | codes[lane + 2] << 16 | codes[lane + 3] << 24;
  }
}
