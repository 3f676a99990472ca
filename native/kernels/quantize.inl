// Activations to 8 bits, row by row, for any lane width. Every table gives the same codes.
// Included inside a lanes_*.h translation unit.

namespace satchel {
namespace {

void quantize_rows(const float* x, int64_t ldx, const QuantizedRows& out) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds, the low bits are the code
  const int64_t cols = out.cols, groups = cols / out.group;
  for (int64_t row = 0; row < out.rows; ++row) {
    const float* values = x + row * ldx;
    int8_t* codes = out.codes + row * out.stride;

    U top = to_bits(broadcast(0.0f)), top_odd = top;
    int64_t i = 0;
    for (; i + 2 * kLanes <= cols; i += 2 * kLanes) {
      top = larger_bits(top, to_bits(load(values + i)) & 0x7fffffffu);
      top_odd = larger_bits(top_odd, to_bits(load(values + i + kLanes)) & 0x7fffffffu);
    }
    for (; i < cols; i += kLanes) {
      const F v = i + kLanes <= cols ? load(values + i) : load_n(values + i, cols - i);
      top = larger_bits(top, to_bits(v) & 0x7fffffffu);
    }
    const uint32_t top_bits = highest_bits(larger_bits(top, top_odd));
    float absmax;
    std::memcpy(&absmax, &top_bits, sizeof absmax);

    // Rows so small that 127 / absmax overflows count as rows of zeros.
    const float inverse = 127.0f / absmax;
    const bool zero = absmax == 0.0f || inverse > 3.402823466e38f;
    out.scales[row] = zero ? 0.0f : absmax / 127.0f;
    const F factor = broadcast(zero ? 0.0f : inverse);
    for (i = 0; i + kLanes <= cols; i += kLanes) {
      store_bytes(codes + i, to_bits(load(values + i) * factor + broadcast(kRound)));
    }
    if (i < cols) {
      int8_t last[kLanes];
      store_bytes(last, to_bits(load_n(values + i, cols - i) * factor + broadcast(kRound)));
      std::memcpy(codes + i, last, static_cast<size_t>(cols - i));
    }
    std::memset(codes + cols, 0, static_cast<size_t>(out.stride - cols));

    for (int64_t g = 0; g < groups; ++g) {
      out.sums[row * groups + g] = sum_codes(codes + g * out.group, out.group);
    }
  }
}

}  // namespace
}  // namespace satchel
