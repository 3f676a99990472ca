// What attention of long blocks is made of, whether registers (attention_long.inl) or tiles
// (amx_attention.cpp) multiply. For AVX-512.

namespace satchel {
namespace {

constexpr float kLowest = -3.402823466e38f;  // of scores; finite, so that differences are
constexpr float kLog2E = 1.44269504088896341f;

// out[column][row] = rows[row][column], 16 by 16.
inline void transpose16(const F* rows, float* out, int64_t ld) {
  F pairs[16], quads[16];
  SATCHEL_UNROLL
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
  SATCHEL_UNROLL
  for (int i = 0; i < 16; i += 4) {
    quads[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    quads[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
  SATCHEL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const F even_low = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0x88);
    const F odd_low = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0xdd);
    const F even_high = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0x88);
    const F odd_high = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0xdd);
    store(out + i * ld, _mm512_shuffle_f32x4(even_low, even_high, 0x88));
    store(out + (i + 4) * ld, _mm512_shuffle_f32x4(odd_low, odd_high, 0x88));
    store(out + (i + 8) * ld, _mm512_shuffle_f32x4(even_low, even_high, 0xdd));
    store(out + (i + 12) * ld, _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd));
  }
}

// 2^x to 1e-7 relative; what would be less than 2^-126 is that.
inline F power_of_two(F x) {
  const F limited = _mm512_max_ps(broadcast(-126.0f), x);  // the second if one is not a number
  const F whole = _mm512_roundscale_ps(limited, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const F rest = limited - whole;
  F p = broadcast(1.534581242594868e-4f);
  p = fma(p, rest, broadcast(1.3399930903688073e-3f));
  p = fma(p, rest, broadcast(9.618489071726799e-3f));
  p = fma(p, rest, broadcast(5.550328642129898e-2f));
  p = fma(p, rest, broadcast(0.24022646248340607f));
  p = fma(p, rest, broadcast(0.6931471824645996f));
  p = fma(p, rest, broadcast(1.0f));
  return _mm512_scalef_ps(p, whole);
}

}  // namespace
}  // namespace satchel
