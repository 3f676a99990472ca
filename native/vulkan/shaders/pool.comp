// max_pool2d and avg_pool2d, channels-last: a thread for each result, or for four codes.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256) in;

layout(constant_id = 0) const uint KIND = 0;
const uint LARGEST = 0, LARGEST_CODE = 1, MEAN = 2;

layout(binding = 0) readonly buffer X { uint x[]; };  // [images][height][width][channels]
layout(binding = 1) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants {
  uint count, height, width, channels, out_h, out_w;
  uint kernel_h, kernel_w, stride_h, stride_w, top, left, bottom, right, dilation_h, dilation_w;
  uint divisor, counts_padding, x_first, y_first;  // divisor 0: what a window has of the image
} c;

#include "common.glsl"
#include "activations.glsl"
#include "codes.glsl"

// How much of a window counts along an axis.
int counted(int start, uint kernel, uint size, uint after) {
  const int end = min(start + int(kernel), int(c.counts_padding != 0 ? size + after : size));
  return end - (c.counts_padding != 0 ? start : max(start, 0));
}

uint result_at(uint number) {
  const uint channel = number % c.channels, pixel = number / c.channels;
  const uint ox = pixel % c.out_w, oy = pixel / c.out_w % c.out_h, image = pixel / c.out_w / c.out_h;
  const int ix = int(ox * c.stride_w) - int(c.left), iy = int(oy * c.stride_h) - int(c.top);
  float most = uintBitsToFloat(0xFF800000u), sum = 0.0;
  uint code = 0;
  for (uint ky = 0; ky < c.kernel_h; ++ky) {
    const int row = iy + int(ky * c.dilation_h);
    if (row < 0 || row >= int(c.height)) continue;
    for (uint kx = 0; kx < c.kernel_w; ++kx) {
      const int column = ix + int(kx * c.dilation_w);
      if (column < 0 || column >= int(c.width)) continue;
      const uint at = ((image * c.height + uint(row)) * c.width + uint(column)) * c.channels + channel;
      if (KIND == LARGEST_CODE) {
        code = max(code, byte_of(x[c.x_first + at / 4], at % 4));
        continue;
      }
      const float own = uintBitsToFloat(x[c.x_first + at]);
      if (own > most || is_no_number(own)) most = own;
      sum += own;
    }
  }
  if (KIND == LARGEST_CODE) return code;
  if (KIND == LARGEST) return floatBitsToUint(most);
  const int places = c.divisor != 0 ? int(c.divisor)
                                    : counted(iy, c.kernel_h, c.height, c.bottom) *
                                          counted(ix, c.kernel_w, c.width, c.right);
  return floatBitsToUint(sum / float(places));
}

void main() {
  const uint number = thread_number();
  if (KIND != LARGEST_CODE) {
    if (number < c.count) y[c.y_first + number] = result_at(number);
    return;
  }
  if (number * 4 >= c.count) return;
  uint codes = 0;
  for (uint i = 0; i < min(4, c.count - number * 4); ++i) codes |= result_at(number * 4 + i) << 8 * i;
  y[c.y_first + number] = codes;
}
