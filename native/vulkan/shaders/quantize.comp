// A token's numbers as whole ones, with the largest magnitude at LARGEST, and its scale; both as
// floats. See QuantizedRows in native/kernels/kernels.h.
#version 450
layout(local_size_x = 128) in;

layout(constant_id = 0) const uint LARGEST = 127;

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Codes { float codes[]; };
layout(binding = 2) writeonly buffer Scales { float scales[]; };

layout(push_constant) uniform Constants { uint cols, x_first, codes_first, scales_first; } c;

shared float largest[128];

void main() {
  const uint token = gl_WorkGroupID.x, thread = gl_LocalInvocationID.x;
  const uint at = c.x_first + token * c.cols;
  float own = 0.0;
  for (uint i = thread; i < c.cols; i += 128) own = max(own, abs(x[at + i]));
  largest[thread] = own;
  for (uint half_size = 64; half_size > 0; half_size /= 2) {
    barrier();
    if (thread < half_size) largest[thread] = max(largest[thread], largest[thread + half_size]);
  }
  barrier();
  const float most = float(LARGEST), size = largest[0];
  // Where the quotient would not be finite, all is zero.
  const bool none = size <= most * 2.938736e-39;
  const float inverse = none ? 0.0 : most / size;
  for (uint i = thread; i < c.cols; i += 128)
    codes[c.codes_first + token * c.cols + i] = roundEven(x[at + i] * inverse);
  if (thread == 0) scales[c.scales_first + token] = none ? 0.0 : size / most;
}
