// Values of 8 bits, element by element, for any lane width. Included after integer_finish.inl.

namespace satchel {
namespace {

inline F numbers_of(const uint8_t* codes, int64_t n, const CodeStep8& step) {
  uint8_t rest[kLanes] = {};
  if (n < kLanes) std::memcpy(rest, codes, static_cast<size_t>(n));
  const F code = load_codes(n < kLanes ? rest : codes);
  return (code - broadcast(static_cast<float>(step.zero))) * broadcast(step.scale);
}

// Rounds to codes, halves to even; the bounds are whole numbers, so it is the same to round first.
inline void put_codes(uint8_t* out, F number, int64_t n, const CodeStep8& step) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const F lowest = broadcast(static_cast<float>(-step.zero));
  const F highest = broadcast(static_cast<float>(255 - step.zero));
  const F limited = smaller(highest, larger(lowest, number * broadcast(1.0f / step.scale)));
  const U code = to_bits(limited + broadcast(kRound)) + static_cast<uint32_t>(step.zero);
  int8_t bytes[kLanes];
  store_bytes(n < kLanes ? bytes : reinterpret_cast<int8_t*>(out), code);
  if (n < kLanes) std::memcpy(out, bytes, static_cast<size_t>(n));
}

void quantize_codes(const float* x, int64_t n, const CodeStep8& step, uint8_t* out) {
  // What is not a number becomes zero, whose code is the zero point.
  const auto number = [](F v) { return from_bits(to_bits(v) & (U)(v == v)); };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) put_codes(out + i, number(load(x + i)), kLanes, step);
  if (i < n) put_codes(out + i, number(load_n(x + i, n - i)), n - i, step);
}

template <class Function>
inline void combine_codes(const CodePair& p, int64_t n, Function f) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t left = n - i;
    const F a = numbers_of(p.a + i, left, p.a_step), b = numbers_of(p.b + i, left, p.b_step);
    put_codes(p.out + i, activated(p.activation, f(a, b)), left, p.out_step);
  }
}

void add_codes(const CodePair& pair, int64_t n) {
  combine_codes(pair, n, [](F a, F b) { return a + b; });
}

void mul_codes(const CodePair& pair, int64_t n) {
  combine_codes(pair, n, [](F a, F b) { return a * b; });
}

}  // namespace
}  // namespace satchel
