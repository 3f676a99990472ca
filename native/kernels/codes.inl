// Values of 8 bits, element by element, for any lane width. Included after integer_finish.inl.

namespace satchel {
namespace {

// Both are copied to registers: a store of bytes could change anything that is read through a
// pointer.
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
  CodeRange range;

  explicit CodeWriter(const CodeStep8& step) : range(1.0f / step.scale, step.zero) {}
  void put(uint8_t* out, F number) const { store_code_rows<1, 1>(out, 0, &number, range); }
  void put(uint8_t* out, F number, int64_t n) const {
    uint8_t bytes[kLanes];
    put(bytes, number);
    std::memcpy(out, bytes, static_cast<size_t>(n));
  }
};

// A row of n codes; part(i, count) are the numbers from place i on. All is passed by value: a store
// of bytes could change anything that is read through a pointer.
template <class Part>
inline void write_codes(CodeWriter to, uint8_t* out, int64_t n, Part part) {
  constexpr int kRows = kCodeRows<2>, kTogether = 2 * kRows;
  int64_t i = 0;
  for (; i + kTogether * kLanes <= n; i += kTogether * kLanes) {
    F numbers[kTogether];
    SATCHEL_UNROLL
    for (int j = 0; j < kTogether; ++j) numbers[j] = part(i + j * kLanes, kLanes);
    store_code_rows<kRows, 2>(out + i, 2 * kLanes, numbers, to.range);
  }
  for (; i + kLanes <= n; i += kLanes) to.put(out + i, part(i, kLanes));
  if (i < n) to.put(out + i, part(i, n - i), n - i);
}

// What is not a number becomes zero, whose code is the zero point.
inline F number_or_zero(F v) { return from_bits(to_bits(v) & (U)(v == v)); }

void quantize_codes(const float* x, int64_t n, const CodeStep8& step, uint8_t* out) {
  write_codes(CodeWriter(step), out, n,
              [=](int64_t i, int64_t count) { return number_or_zero(load_part(x + i, count)); });
}

void layer_norm_codes(const float* x, const float* weight, const float* bias, float eps,
                      int64_t rows, int64_t cols, const CodeStep8& step, uint8_t* out) {
  const CodeWriter to(step);
  normalize(x, weight, bias, eps, rows, cols, [=](int64_t place, auto part) {
    write_codes(to, out + place, cols,
                [=](int64_t i, int64_t count) { return number_or_zero(part(i, count)); });
  });
}

void quantize_scaled(const float* x, int64_t rows, int64_t cols, const float* factors,
                     const CodeStep8& step, uint8_t* out) {
  const CodeWriter to(step);
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    const F factor = broadcast(factors[row]);
    write_codes(to, out, cols, [=](int64_t i, int64_t count) {
      return number_or_zero(load_part(x + i, count) * factor);
    });
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
    write_codes(to, out, n, [=](int64_t i, int64_t count) {
      if (count >= kLanes) return f(first.numbers(a + i), second.numbers(b + i));
      return f(first.numbers(a + i, count), second.numbers(b + i, count));
    });
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
