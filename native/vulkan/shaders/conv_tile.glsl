// A convolution without groups as a product of matrices: 64 pixels and 64 outputs for each workgroup,
// 16 words of columns at a time, which are numbers or four codes each. What windows see is read from the
// image as it is needed. conv_call.glsl and dot4 come before it.
const uint STEP = 16, SIDE = 64, STRIDE = SIDE / 4 + 1;
shared uvec4 x_tile[STEP * STRIDE];
shared uvec4 w_tile[STEP * STRIDE];

struct Pixel {
  uint image;  // its first element
  uint oy, ox;
};

uint columns() { return c.kernel_h * c.kernel_w * c.channels; }

// An element of what a pixel's window sees, or what stands for nothing.
uint element(Pixel pixel, uint column, uint nothing) {
  const uint tap = column / c.channels, channel = column % c.channels;
  const int iy = tap_source(pixel.oy, tap / c.kernel_w, c.stride_h, c.top, c.dilation_h, c.height);
  const int ix = tap_source(pixel.ox, tap % c.kernel_w, c.stride_w, c.left, c.dilation_w, c.width);
  if (iy < 0 || ix < 0) return nothing;
  const uint at = pixel.image + (uint(iy) * c.width + uint(ix)) * c.channels + channel;
  return IS_BYTES ? byte_of(x[c.x_first + at / 4], at % 4) : x[c.x_first + at];
}

// A word of columns: codes are 128 less, as signed bytes.
uint x_word(Pixel pixel, uint number, uint words) {
  const uint zero = uint(c.x_zero);
  if (number >= words) return 0;
  if (!IS_BYTES) return IS_POINT ? x[c.x_first + pixel.image + number] : element(pixel, number, 0);
  if (HAS_WHOLE_WORDS) {
    if (IS_POINT) return x[c.x_first + pixel.image / 4 + number] ^ 0x80808080u;
    const uint per_tap = c.channels / 4, tap = number / per_tap;
    const int iy = tap_source(pixel.oy, tap / c.kernel_w, c.stride_h, c.top, c.dilation_h, c.height);
    const int ix = tap_source(pixel.ox, tap % c.kernel_w, c.stride_w, c.left, c.dilation_w, c.width);
    if (iy < 0 || ix < 0) return zero * 0x01010101u ^ 0x80808080u;
    const uint at = pixel.image / 4 + (uint(iy) * c.width + uint(ix)) * per_tap + number % per_tap;
    return x[c.x_first + at] ^ 0x80808080u;
  }
  uint word = 0;
  for (uint i = 0; i < 4; ++i) {
    const uint column = number * 4 + i;
    if (column < columns()) word |= element(pixel, column, zero) << 8 * i;
  }
  return word ^ 0x80808080u;
}

// A word of weights, which has two of them if they are halves.
uint w_word(uint tile, uint number, uint row, uint words) {
  if (number >= words) return 0;
  const uint at = (tile * words + number) * 16 + row;
  return w[c.w_first + (ENCODING == F16 ? at / 2 : at)];
}

// A thread's part of the next step, which is on its way while one is multiplied.
Pixel pixels[4];
uint x_next[4], w_next[4];

void fetch(uint begin, uint words, uint first_output) {
  const uint thread = gl_LocalInvocationID.x, last_tile = (c.outputs - 1) / 16;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint tile = min(first_output / 16 + i, last_tile);
    x_next[i] = x_word(pixels[i], begin + thread % 16, words);
    w_next[i] = w_word(tile, begin + thread / 16, thread % 16, words);
  }
}

void store() {
  const uint thread = gl_LocalInvocationID.x, k = thread % 16, row = thread % 16;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint pixel = thread / 16 + 16 * i;
    x_tile[k * STRIDE + pixel / 4][pixel % 4] = x_next[i];
    w_tile[thread / 16 * STRIDE + i * 4 + row / 4][row % 4] =
        ENCODING == F16 ? floatBitsToUint(half_of(w_next[i], row % 2)) : w_next[i];
  }
}

// The products of four pixels and four outputs each, of a thread.
void multiply(uint first_pixel, uint first_output, out vec4 sums[4], out ivec4 whole[4]) {
  const uint thread = gl_LocalInvocationID.x;
  const uint words = IS_BYTES ? (columns() + 3) / 4 : columns();
  [[unroll]] for (uint i = 0; i < 4; ++i) sums[i] = vec4(0.0), whole[i] = ivec4(0);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint number = min(first_pixel + thread / 16 + 16 * i, c.pixels - 1);
    if (IS_POINT) {
      pixels[i] = Pixel(number * c.channels, 0, 0);
    } else {
      const uint in_image = number % (c.out_h * c.out_w);
      pixels[i] = Pixel(number / (c.out_h * c.out_w) * c.height * c.width * c.channels,
                        in_image / c.out_w, in_image % c.out_w);
    }
  }
  fetch(0, words, first_output);
  for (uint begin = 0; begin < words; begin += STEP) {
    store();
    barrier();
    fetch(begin + STEP, words, first_output);
    for (uint k = 0; k < STEP; ++k) {
      const uvec4 a = x_tile[k * STRIDE + thread / 16], b = w_tile[k * STRIDE + thread % 16];
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        if (IS_BYTES)
          whole[i] += ivec4(dot4(a[i], b.x), dot4(a[i], b.y), dot4(a[i], b.z), dot4(a[i], b.w));
        else
          sums[i] = fma(vec4(uintBitsToFloat(a[i])), uintBitsToFloat(b), sums[i]);
      }
    }
    barrier();
  }
}

void main() {
  const uint first_pixel = gl_WorkGroupID.x * SIDE, first_output = gl_WorkGroupID.y * SIDE;
  vec4 sums[4];
  ivec4 whole[4];
  multiply(first_pixel, first_output, sums, whole);
  const uint first = first_output + gl_LocalInvocationID.x % 16 * 4;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint pixel = first_pixel + gl_LocalInvocationID.x / 16 * 4 + i;
    if (pixel >= c.pixels || first >= c.outputs) continue;
    uint codes = 0;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const uint output_ = first + j, at = pixel * c.outputs + output_;
      if (output_ >= c.outputs) continue;
      if (!IS_BYTES)
        y[c.y_first + at] = floatBitsToUint(finished_float(sums[i][j], output_, at));
      else if (TO_CODES)  // whole words: the outputs are a multiple of four
        codes |= finished_bytes(whole[i][j], output_, at) << 8 * j;
      else
        y[c.y_first + at] = finished_bytes(whole[i][j], output_, at);
    }
    if (IS_BYTES && TO_CODES) y[c.y_first + (pixel * c.outputs + first) / 4] = codes;
  }
}
