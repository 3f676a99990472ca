// Convolutions with groups, and results that are no whole words: a thread for each result, or for four
// codes.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "conv_call.glsl"

float weight_at(uint row, uint column, uint columns) {
  const uint at = (row / 16 * columns + column) * 16 + row % 16;
  return ENCODING == F32 ? uintBitsToFloat(w[c.w_first + at]) : half_of(w[c.w_first + at / 2], at % 2);
}

int code_at(uint row, uint column, uint columns) {
  const uint at = (row / 16 * ((columns + 3) / 4) + column / 4) * 16 + row % 16;
  return bitfieldExtract(int(w[c.w_first + at]), int(column % 4) * 8, 8);
}

uint result_at(uint at) {
  const uint output_ = at % c.outputs, pixel = at / c.outputs, in_image = pixel % (c.out_h * c.out_w);
  const uint oy = in_image / c.out_w, ox = in_image % c.out_w;
  const uint image = pixel / (c.out_h * c.out_w) * c.height * c.width * c.channels;
  const uint first = output_ / c.group_outputs * c.group_channels;
  const uint columns = c.kernel_h * c.kernel_w * c.group_channels;
  float sum = 0.0;
  int whole = 0;
  for (uint ky = 0; ky < c.kernel_h; ++ky) {
    const int iy = tap_source(oy, ky, c.stride_h, c.top, c.dilation_h, c.height);
    if (iy < 0 && !IS_BYTES) continue;
    for (uint kx = 0; kx < c.kernel_w; ++kx) {
      const int ix = tap_source(ox, kx, c.stride_w, c.left, c.dilation_w, c.width);
      if (ix < 0 && !IS_BYTES) continue;
      const uint from = image + (uint(max(iy, 0)) * c.width + uint(max(ix, 0))) * c.channels + first;
      const uint column = (ky * c.kernel_w + kx) * c.group_channels;
      for (uint channel = 0; channel < c.group_channels; ++channel) {
        const uint place = from + channel;
        if (!IS_BYTES) {
          sum = fma(uintBitsToFloat(x[c.x_first + place]), weight_at(output_, column + channel, columns), sum);
        } else {
          const int code = iy < 0 || ix < 0 ? c.x_zero : int(byte_of(x[c.x_first + place / 4], place % 4));
          whole += (code - 128) * code_at(output_, column + channel, columns);
        }
      }
    }
  }
  return IS_BYTES ? finished_bytes(whole, output_, at) : floatBitsToUint(finished_float(sum, output_, at));
}

void main() {
  const uint count = c.pixels * c.outputs, number = thread_number();
  if (!TO_CODES) {
    if (number < count) y[c.y_first + number] = result_at(number);
    return;
  }
  if (number * 4 >= count) return;
  uint codes = 0;
  for (uint i = 0; i < min(4, count - number * 4); ++i) codes |= result_at(number * 4 + i) << 8 * i;
  y[c.y_first + number] = codes;
}
