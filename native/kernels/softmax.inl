// Softmax over a block of scores at a time, for any lane width. Included after elementwise.inl.

namespace satchel {
namespace {

// See KernelTable::softmax_block.
void softmax_block(float* scores, int64_t n, float scale, const float* bias, SoftmaxState* state) {
  F most = broadcast(state->largest);
  const auto part = [n](const float* p, int64_t i) {
    return i + kLanes <= n ? load(p + i) : load_n(p + i, n - i);
  };
  const auto put = [n](float* p, int64_t i, F v) {
    i + kLanes <= n ? store(p + i, v) : store_n(p + i, v, n - i);
  };
  float largest = state->largest;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    F s = load(scores + i) * broadcast(scale);
    if (bias) s = s + load(bias + i);
    store(scores + i, s);
    most = larger(most, s);
  }
  largest = highest(most);
  for (; i < n; ++i) {
    float s = scores[i] * scale;
    if (bias) s = s + bias[i];
    scores[i] = s;
    largest = s > largest || s != s ? s : largest;
  }
  // Nothing but -inf so far: no key counts yet.
  const bool none = largest == -__builtin_inff();
  const F centre = broadcast(none ? 0.0f : largest);
  F total = broadcast(0.0f);
  for (i = 0; i < n; i += kLanes) {
    F p = exponential(part(scores, i) - centre);
    put(scores, i, p);
    if (i + kLanes > n) {
      // Lanes past the end hold exp(0 - largest): they do not count.
      float lanes[kLanes] = {};
      store_n(lanes, p, n - i);
      p = load(lanes);
    }
    total = total + p;
  }
  float old[kLanes] = {none || state->largest == -__builtin_inff() ? -100.0f : state->largest - largest};
  store(old, exponential(load(old)));
  state->correction = state->total == 0.0f ? 0.0f : old[0];
  state->total = state->total * state->correction + sum(total);
  state->largest = largest;
}

// See KernelTable::softmax_codes.
float softmax_codes(float* scores, int64_t n, const float* bias, uint8_t* codes) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kNone = -__builtin_inff();
  F most = broadcast(kNone);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    F s = load(scores + i);
    if (bias) s = s + load(bias + i);
    store(scores + i, s);
    most = larger(most, s);
  }
  if (i < n) {  // what is missing in the last register counts for nothing
    float rest[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) {
      rest[j] = i + j < n ? scores[i + j] + (bias ? bias[i + j] : 0.0f) : kNone;
    }
    const F s = load(rest);
    store(scores + i, s);
    most = larger(most, s);
  }
  const float largest = highest(most);
  const F centre = broadcast(largest == kNone ? 0.0f : largest);
  F total = broadcast(0.0f);
  for (i = 0; i < n; i += kLanes) {
    const F code = exponential(load(scores + i) - centre) * broadcast(255.0f) + broadcast(kRound);
    total = total + (code - broadcast(kRound));
    store_bytes(reinterpret_cast<int8_t*>(codes + i), to_bits(code));
  }
  for (; i % kTileRows != 0; ++i) codes[i] = 0;
  return sum(total);
}

// out = out * factor + add * other, n values.
void blend(float* out, float factor, const float* add, float other, int64_t n) {
  const F a = broadcast(factor), b = broadcast(other);
  for_each(out, add, n, out, [=](F x, F y) { return x * a + y * b; });
}

}  // namespace
}  // namespace satchel
