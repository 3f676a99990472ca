// Values of 8 bits, element by element, for any lane width. Included after integer_finish.inl.

namespace satchel {
namespace {

// Both are copied to registers: a store of bytes could change anything that is read through a pointer.
struct CodeReader {
  F zero, scale;

  explicit CodeReader(const CodeStep8& step)
      : zero(broadcast(static_cast<float>(step.zero))), scale(broadcast(step.scale)) {}
  F numbers(const uint8_t* codes) const { return (load_codes(codes) - zero) * scale; }
  F numbers(const uint8_t* codes, int64_t n) const {
    uint8_t rest[kLanes] = {};
    std::memcpy(rest, codes, static_cast<size_t>(n));
    return numbers(rest);
  }
};

// Rounds to codes, halves to even; the bounds are whole numbers, so it is the same to round first.
struct CodeWriter {
  F lowest, highest, inverse;
  uint32_t zero;

  explicit CodeWriter(const CodeStep8& step)
      : lowest(broadcast(static_cast<float>(-step.zero))),
        highest(broadcast(static_cast<float>(255 - step.zero))),
        inverse(broadcast(1.0f / step.scale)), zero(static_cast<uint32_t>(step.zero)) {}
  void put(uint8_t* out, F number) const {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const F limited = smaller(highest, larger(lowest, number * inverse));
    store_bytes(reinterpret_cast<int8_t*>(out), to_bits(limited + broadcast(kRound)) + zero);
  }
  void put(uint8_t* out, F number, int64_t n) const {
    uint8_t bytes[kLanes];
    put(bytes, number);
    std::memcpy(out, bytes, static_cast<size_t>(n));
  }
};

// What is not a number becomes zero, whose code is the zero point.
inline F number_or_zero(F v) { return from_bits(to_bits(v) & (U)(v == v)); }

void quantize_codes(const float* x, int64_t n, const CodeStep8& step, uint8_t* out) {
  const CodeWriter to(step);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) to.put(out + i, number_or_zero(load(x + i)));
  if (i < n) to.put(out + i, number_or_zero(load_n(x + i, n - i)), n - i);
}

void quantize_scaled(const float* x, int64_t rows, int64_t cols, const float* factors,
                     const CodeStep8& step, uint8_t* out) {
  const CodeWriter to(step);
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    const F factor = broadcast(factors[row]);
    int64_t i = 0;
    for (; i + kLanes <= cols; i += kLanes) to.put(out + i, number_or_zero(load(x + i) * factor));
    if (i < cols) to.put(out + i, number_or_zero(load_n(x + i, cols - i) * factor), cols - i);
  }
}

template <class Function>
inline void combine_rows(const CodePair& pair, int64_t n, Function f) {
  const CodeReader first(pair.a_step), second(pair.b_step);
  const CodeWriter to(pair.out_step);
  const int64_t rows = pair.rows, a_stride = pair.a_stride, b_stride = pair.b_stride;
  const uint8_t *a = pair.a, *b = pair.b;
  uint8_t* out = pair.out;
  for (int64_t row = 0; row < rows; ++row, a += a_stride, b += b_stride, out += n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      to.put(out + i, f(first.numbers(a + i), second.numbers(b + i)));
    }
    if (i < n) to.put(out + i, f(first.numbers(a + i, n - i), second.numbers(b + i, n - i)), n - i);
  }
}

template <class Function>
inline void combine_codes(const CodePair& pair, int64_t n, Function f) {
  const Activation activation = pair.activation;
  if (activation == Activation::none) return combine_rows(pair, n, f);
  combine_rows(pair, n, [&](F a, F b) { return activated(activation, f(a, b)); });
}

void add_codes(const CodePair& pair, int64_t n) {
  combine_codes(pair, n, [](F a, F b) { return a + b; });
}

void mul_codes(const CodePair& pair, int64_t n) {
  combine_codes(pair, n, [](F a, F b) { return a * b; });
}

}  // namespace
}  // namespace satchel
