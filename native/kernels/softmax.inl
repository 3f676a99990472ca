// Softmax over a block of scores at a time, for any lane width. Included after elementwise.inl.

namespace satchel {
namespace {

// Zeros, and -inf behind them.
struct NothingBehind {
  float values[2 * kLanes];
  constexpr NothingBehind() : values() {
    for (int i = kLanes; i < 2 * kLanes; ++i) values[i] = -__builtin_inff();
  }
};
constexpr NothingBehind kNothingBehind;

// See KernelTable::softmax_block.
void softmax_block(float* scores, int64_t n, float scale, const float* bias, SoftmaxState* state) {
  const F factor = broadcast(scale);
  const auto score = [=](int64_t i) {
    const int64_t there = n - i;
    if (there >= kLanes) {
      const F s = load(scores + i) * factor;
      return bias ? s + load(bias + i) : s;
    }
    // What is missing is -inf, and counts for nothing.
    F s = load_n(scores + i, there) * factor;
    if (bias) s = s + load_n(bias + i, there);
    return s + load(kNothingBehind.values + kLanes - there);
  };
  F most = broadcast(state->largest), others = most;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    most = larger(most, score(i));
    others = larger(others, score(i + kLanes));
  }
  for (; i < n; i += kLanes) most = larger(most, score(i));
  const float largest = highest(larger(others, most));
  // Nothing but -inf so far: no key counts yet.
  const bool none = largest == -__builtin_inff();
  const F centre = broadcast(none ? 0.0f : largest);
  F total = broadcast(0.0f);
  constexpr int kTogether = 4;
  for (i = 0; i + kTogether * kLanes <= n; i += kTogether * kLanes) {
    F p[kTogether];
    SATCHEL_UNROLL
    for (int v = 0; v < kTogether; ++v) p[v] = score(i + v * kLanes) - centre;
    exponentials<kTogether>(p);
    SATCHEL_UNROLL
    for (int v = 0; v < kTogether; ++v) {
      store(scores + i + v * kLanes, p[v]);
      total = total + p[v];
    }
  }
  for (; i < n; i += kLanes) {
    const F p = exponential(score(i) - centre);
    i + kLanes <= n ? store(scores + i, p) : store_n(scores + i, p, n - i);
    total = total + p;
  }
  state->correction = 0.0f;
  if (state->total != 0.0f) {
    float old[kLanes] = {state->largest - largest};
    store(old, exponential(load(old)));
    state->correction = old[0];
  }
  state->total = state->total * state->correction + sum(total);
  state->largest = largest;
}

// 255 * exp(x) for x <= 0 as whole numbers, in the lower bits; 0 for -inf. 2^n times a polynomial
// for the rest of the power, to 1e-7.
inline U exponential_codes(F x) {
  constexpr float kRound = 12582912.0f, kLogarithm = 1.44269504088896341f;  // kRound: 1.5 * 2^23
  const F limited = larger(broadcast(-20.0f), x);
  const F shifted = fma(limited, broadcast(kLogarithm), broadcast(kRound));
  const F rest = fma(limited, broadcast(kLogarithm), broadcast(kRound) - shifted);
  F p = broadcast(0.338550037f);
  p = fma(p, rest, broadcast(2.46726305f));
  p = fma(p, rest, broadcast(14.1543188f));
  p = fma(p, rest, broadcast(61.2564053f));
  p = fma(p, rest, broadcast(176.752477f));
  p = fma(p, rest, broadcast(255.000018f));
  return to_bits(from_bits(to_bits(p) + (to_bits(shifted) << 23)) + broadcast(kRound));
}

// The scores of a row, in registers of which the last lacks some.
struct ScoreRow {
  const float *scores, *bias;
  int64_t n;

  F part(int64_t i) const {
    const int64_t there = n - i;
    if (there >= kLanes) return bias ? load(scores + i) + load(bias + i) : load(scores + i);
    // What is missing is -inf, and counts for nothing.
    const F s = load_n(scores + i, there) + load(kNothingBehind.values + kLanes - there);
    return bias ? s + load_n(bias + i, there) : s;
  }
};

// The codes of a row of at most V registers, which hold it throughout; returns their sum.
template <int V>
inline float softmax_codes_row(const ScoreRow& row, uint8_t* codes) {
  constexpr float kNone = -__builtin_inff();
  F s[V], most = broadcast(kNone);
  SATCHEL_UNROLL
  for (int v = 0; v < V; ++v) {
    s[v] = row.part(v * kLanes);
    most = larger(most, s[v]);
  }
  const float largest = highest(most);
  const F centre = broadcast(largest == kNone ? 0.0f : largest);
  U total{};
  SATCHEL_UNROLL
  for (int v = 0; v < V; ++v) {
    const U code = exponential_codes(s[v] - centre);
    total = total + (code & 0xffu);
    store_bytes(reinterpret_cast<int8_t*>(codes + v * kLanes), code);
  }
  return sum(to_floats((I)total));
}

float softmax_codes_long(const ScoreRow& row, float* scores, uint8_t* codes) {
  constexpr float kNone = -__builtin_inff();
  F most = broadcast(kNone);
  for (int64_t i = 0; i < row.n; i += kLanes) {
    const F s = row.part(i);
    store(scores + i, s);
    most = larger(most, s);
  }
  const float largest = highest(most);
  const F centre = broadcast(largest == kNone ? 0.0f : largest);
  U total{};
  for (int64_t i = 0; i < row.n; i += kLanes) {
    const U code = exponential_codes(load(scores + i) - centre);
    total = total + (code & 0xffu);
    store_bytes(reinterpret_cast<int8_t*>(codes + i), code);
  }
  return sum(to_floats((I)total));
}

// See KernelTable::softmax_codes.
void softmax_codes(const ScoreRows& rows) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    float* scores = rows.scores + r * rows.stride;
    uint8_t* codes = rows.codes + r * rows.stride;
    const ScoreRow row{scores, rows.bias ? rows.bias + r * rows.bias_stride : nullptr, rows.n};
    switch ((rows.n + kLanes - 1) / kLanes) {
      case 1:
        rows.totals[r] = softmax_codes_row<1>(row, codes);
        break;
      case 2:
        rows.totals[r] = softmax_codes_row<2>(row, codes);
        break;
      case 3:
        rows.totals[r] = softmax_codes_row<3>(row, codes);
        break;
      case 4:
        rows.totals[r] = softmax_codes_row<4>(row, codes);
        break;
      default:
        rows.totals[r] = softmax_codes_long(row, scores, codes);
    }
    for (int64_t i = (rows.n + kLanes - 1) / kLanes * kLanes; i % kTileRows != 0; ++i) codes[i] = 0;
  }
}

// out = out * factor + add * other, n values.
void blend(float* out, float factor, const float* add, float other, int64_t n) {
  const F a = broadcast(factor), b = broadcast(other);
  for_each(out, add, n, out, [=](F x, F y) { return x * a + y * b; });
}

}  // namespace
}  // namespace satchel
