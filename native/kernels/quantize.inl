// Activations and cache rows to 8 bits, row by row, for any lane width. Every table gives the same
// codes. Included inside a lanes_*.h translation unit.

namespace satchel {
namespace {

constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds, the low bits are the code
constexpr uint32_t kMagnitude = 0x7fffffffu;
constexpr float kLargestFloat = 3.402823466e38f;

// The largest magnitude of a row; NaN or infinity if it holds one.
inline float largest_magnitude(const float* values, int64_t n) {
  U top = to_bits(broadcast(0.0f)), top_odd = top;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    top = larger_bits(top, to_bits(load(values + i)) & kMagnitude);
    top_odd = larger_bits(top_odd, to_bits(load(values + i + kLanes)) & kMagnitude);
  }
  for (; i < n; i += kLanes) {
    const F v = i + kLanes <= n ? load(values + i) : load_n(values + i, n - i);
    top = larger_bits(top, to_bits(v) & kMagnitude);
  }
  const uint32_t top_bits = highest_bits(larger_bits(top, top_odd));
  float largest;
  std::memcpy(&largest, &top_bits, sizeof largest);
  return largest;
}

// The step of a row and its inverse, for codes up to `most`. Rows so small that most / absmax
// overflows count as rows of zeros.
struct Step {
  float scale, inverse;
};
inline Step step_of(float absmax, float most) {
  const float inverse = most / absmax;
  const bool zero = absmax == 0.0f || inverse > kLargestFloat;
  return {zero ? 0.0f : absmax / most, zero ? 0.0f : inverse};
}

// The codes of a row in one or two digits: `split` gets code + kRound, and gives vectors whose
// lanes have a digit in their low byte.
template <int Digits, class Split>
inline void write_codes(const float* values, int64_t cols, float factor, int8_t* const* codes,
                        Split split) {
  U digits[Digits];
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    split(load(values + i) * broadcast(factor) + broadcast(kRound), digits);
    for (int d = 0; d < Digits; ++d) store_bytes(codes[d] + i, digits[d]);
  }
  if (i < cols) {
    split(load_n(values + i, cols - i) * broadcast(factor) + broadcast(kRound), digits);
    for (int d = 0; d < Digits; ++d) {
      int8_t last[kLanes];
      store_bytes(last, digits[d]);
      std::memcpy(codes[d] + i, last, static_cast<size_t>(cols - i));
    }
  }
}

// The zeros after a row's codes, and the sums of its groups.
inline void finish_row(const QuantizedRows& out, int64_t row) {
  int8_t* codes = out.codes + row * out.stride;
  std::memset(codes + out.cols, 0, static_cast<size_t>(out.stride - out.cols));
  const int64_t groups = out.cols / out.group;
  for (int64_t g = 0; g < groups; ++g) {
    out.sums[row * groups + g] = sum_codes(codes + g * out.group, out.group);
  }
}

void quantize_rows(const float* x, int64_t ldx, const QuantizedRows& out) {
  for (int64_t row = 0; row < out.rows; ++row) {
    const float* values = x + row * ldx;
    int8_t* codes[1] = {out.codes + row * out.stride};
    const Step step = step_of(largest_magnitude(values, out.cols), 127.0f);
    out.scales[row] = step.scale;
    write_codes<1>(values, out.cols, step.inverse, codes,
                   [](F rounded, U* digits) { digits[0] = to_bits(rounded); });
    finish_row(out, row);
  }
}

void quantize_rows16(const float* x, int64_t ldx, const QuantizedRows& out) {
  constexpr float kBase = kDigitBase;
  for (int64_t row = 0; row < out.rows; row += 2) {
    const float* values = x + row / 2 * ldx;
    int8_t* codes[2] = {out.codes + row * out.stride, out.codes + (row + 1) * out.stride};
    const Step step = step_of(largest_magnitude(values, out.cols), kLargest16);
    out.scales[row] = step.scale * kBase;
    out.scales[row + 1] = step.scale;
    write_codes<2>(values, out.cols, step.inverse, codes, [](F rounded, U* digits) {
      // The base is odd, so that a code is never half-way between two high digits.
      const F code = rounded - broadcast(kRound);
      const F high = code * broadcast(1.0f / kBase) + broadcast(kRound);
      const F rest = code - (high - broadcast(kRound)) * broadcast(kBase);
      digits[0] = to_bits(high);
      digits[1] = to_bits(rest + broadcast(kRound));
    });
    finish_row(out, row);
    finish_row(out, row + 1);
  }
}

void quantize_cache(const float* x, int64_t dim, uint8_t* out) {
  float low = x[0], high = x[0];
  int64_t i = 0;
  if (dim >= kLanes) {
    F lowest = load(x), top = lowest;
    for (; i + kLanes <= dim; i += kLanes) {
      lowest = smaller(load(x + i), lowest);
      top = larger(load(x + i), top);
    }
    low = -highest(broadcast(0.0f) - lowest);
    high = highest(top);
  }
  for (; i < dim; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  float zero = low + 0.0f, scale = 0.0f, inverse = 0.0f;  // + 0: a zero has no sign
  const float range = high - low;
  const float absmax = largest_magnitude(x, dim);
  if (absmax <= kLargestFloat && range <= kLargestFloat) {
    inverse = 255.0f / range;
    scale = range / 255.0f;
    if (!(inverse <= kLargestFloat)) scale = inverse = 0.0f;
  } else {
    zero = scale = __builtin_nanf("");
  }
  // Without a step all codes are 0: also where x is not finite.
  if (inverse == 0.0f) {
    std::memset(out, 0, static_cast<size_t>(dim));
  } else {
    int8_t* codes = reinterpret_cast<int8_t*>(out);
    for (i = 0; i + kLanes <= dim; i += kLanes) {
      const F code = (load(x + i) - broadcast(zero)) * broadcast(inverse) + broadcast(kRound);
      store_bytes(codes + i, to_bits(code));
    }
    if (i < dim) {
      const F last = load_n(x + i, dim - i);
      int8_t bytes[kLanes];
      store_bytes(bytes,
                  to_bits((last - broadcast(zero)) * broadcast(inverse) + broadcast(kRound)));
      std::memcpy(codes + i, bytes, static_cast<size_t>(dim - i));
    }
  }
  std::memcpy(out + dim, &scale, sizeof scale);
  std::memcpy(out + dim + 4, &zero, sizeof zero);
}

}  // namespace
}  // namespace satchel
