// What the shaders of convolutions share: a call, in floats or in codes, and what becomes of a sum of
// products. Linear layers are convolutions with a kernel of one pixel.
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const uint ENCODING = 0;  // of the weight
layout(constant_id = 1) const uint ACTIVATION = 0;
layout(constant_id = 2) const bool HAS_BIAS = false;
layout(constant_id = 3) const bool HAS_RESIDUAL = false;
layout(constant_id = 4) const bool HAS_WHOLE_WORDS = false;  // a pixel's codes begin with a word
layout(constant_id = 5) const bool TO_CODES = false;
layout(constant_id = 6) const bool IS_TRANSPOSED = false;
layout(constant_id = 7) const bool IS_POINT = false;  // what an output sees is its own pixel
const uint F32 = 0, F16 = 1, I8 = 8;
const bool IS_BYTES = ENCODING == I8;

layout(binding = 0) readonly buffer X { uint x[]; };  // [images][height][width][channels]
layout(binding = 1) readonly buffer Weights { uint w[]; };
layout(binding = 2) readonly buffer Sums { int row_sums[]; };
layout(binding = 3) readonly buffer Scale { float scale[]; };
layout(binding = 4) readonly buffer Bias { float bias[]; };
layout(binding = 5) readonly buffer Residual { uint residual[]; };
layout(binding = 6) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants {
  uint height, width, channels, out_h, out_w, outputs, pixels;
  uint kernel_h, kernel_w, stride_h, stride_w, top, left, dilation_h, dilation_w;
  uint group_channels, group_outputs;
  uint x_first, w_first, sums_first, scale_first, bias_first, residual_first, y_first;
  int x_zero, out_zero, residual_zero;
  float inverse_out_scale, residual_scale;
} c;

#include "common.glsl"
#include "activations.glsl"
#include "codes.glsl"

// Where place k of a kernel looks for the output at `o`: a row or column of the image, or -1.
int tap_source(uint o, uint k, uint stride, uint before, uint dilation, uint size) {
  int at = IS_TRANSPOSED ? int(o + before) - int(k * dilation)
                         : int(o * stride + k * dilation) - int(before);
  if (IS_TRANSPOSED) {
    if (at < 0 || at % int(stride) != 0) return -1;
    at /= int(stride);
  }
  return at >= 0 && at < int(size) ? at : -1;
}

// The result at `at` of all, from a sum of products.
float finished_float(float sum, uint output_, uint at) {
  precise float result = sum;
  if (HAS_BIAS) result += bias[c.bias_first + output_];
  if (HAS_RESIDUAL) result += uintBitsToFloat(residual[c.residual_first + at]);
  return activated(ACTIVATION, result);
}

// See IntegerResult in native/kernels/kernels.h. Of the numbers of x, 128 less were multiplied.
uint finished_bytes(int sum, uint output_, uint at) {
  const float whole = float(sum + (128 - c.x_zero) * row_sums[c.sums_first + output_]);
  const float step = scale[c.scale_first + output_];
  const float added = HAS_BIAS ? bias[c.bias_first + output_] : 0.0;
  float beside = 0.0;
  if (HAS_RESIDUAL) beside = float(byte_of(residual[c.residual_first + at / 4], at % 4));
  if (TO_CODES && ACTIVATION <= RELU6) {
    const float by = c.inverse_out_scale;
    precise float residual_step = c.residual_scale * by;
    precise float factor = step * by;
    precise float rest = added * by - float(c.residual_zero) * residual_step;
    precise float u = fma(whole, factor, rest);
    if (HAS_RESIDUAL) u = fma(beside, residual_step, u);
    if (ACTIVATION != NONE) u = max(u, 0.0);
    if (ACTIVATION == RELU6) u = min(u, 6.0 * by);
    return code_of(u, c.out_zero);
  }
  precise float t = whole * step + added;
  if (HAS_RESIDUAL) t += (beside - float(c.residual_zero)) * c.residual_scale;
  t = activated(ACTIVATION, t);
  return TO_CODES ? code_of(t * c.inverse_out_scale, c.out_zero) : floatBitsToUint(t);
}
