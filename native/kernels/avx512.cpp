// The AVX-512 table: vpdpbusd multiplies four bytes of each of a tile's 16 rows at once.

#include "lanes_avx512.h"

#include "elementwise.inl"
#include "quantize.inl"
#include "activate.inl"
#include "softmax.inl"
#include "linear_float.inl"
#include "integer_finish.inl"
#include "codes.inl"
#include "dots_avx512.h"
#include "linear_i8.inl"
#include "depthwise.inl"
#include "depthwise_i8_avx512.inl"
#include "attention.inl"
#include "attention_long.inl"
#include "scales.inl"
#include "streams_ahead.h"

namespace satchel {
namespace {

// A single row waits for memory: more tiles at once are more streams for the prefetchers.
constexpr int kTilesForOneRow = 4;

inline __m512i load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }

// Four activations in every lane.
inline __m512i broadcast4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}

// sums += unsigned bytes times signed bytes, by fours. In assembly, because gcc copies the sums to
// another register and back around the intrinsic.
inline void accumulate(__m512i& sums, __m512i codes, __m512i activations) {
#if defined(__GNUC__) && !defined(__clang__)
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(activations));
#else
  sums = _mm512_dpbusd_epi32(sums, codes, activations);
#endif
}

}  // namespace
}  // namespace satchel

#include "avx512_codes.inl"
#include "avx512_rows.inl"
#include "avx512_steps.inl"
#include "avx512_runs.inl"
#include "avx512_groups.inl"
#include "avx512_pairs.inl"
#include "avx512_superblocks.inl"

namespace satchel {
namespace {

template <class Code>
void linear_q(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t ldy) {
  if (!is_long(x) || w.group > kColumnsTogether) {
    return linear_groups<Code>(x, w, bias, tile_begin, tile_end, y, ldy);
  }
  if constexpr (Code::kMayHaveRuns) {
    return linear_runs(x, w, bias, tile_begin, tile_end, y, ldy, linear_rows<Code>);
  }
  linear_rows<Code>(x, w, bias, tile_begin, tile_end, y, ldy);
}

void linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  if (w.encoding != MatrixEncoding::q4_steps) {
    linear_q<Q4>(x, w, bias, tile_begin, tile_end, y, ldy);
  } else if (!is_long(x)) {
    linear_steps(x, w, bias, tile_begin, tile_end, y, ldy);
  } else {
    linear_runs(x, w, bias, tile_begin, tile_end, y, ldy, linear_steps);
  }
}

void linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t ldy) {
  linear_q<Q8>(x, w, bias, tile_begin, tile_end, y, ldy);
}

// Long blocks of tokens find the codes unpacked.
template <class Code>
void linear_superblocks_8(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                          int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  const auto linear = is_long(x) ? linear_rows<Code> : linear_superblocks<Code, 1>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

void linear_k(const QuantizedRows& x, const PackedMatrix& w, const float* bias, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t ldy) {
  const auto linear = w.encoding == MatrixEncoding::q4_k   ? linear_superblocks_8<Q4K>
                      : w.encoding == MatrixEncoding::q5_k ? linear_superblocks_8<Q5K>
                      : w.encoding == MatrixEncoding::q6_k ? linear_superblocks_8<Q6K>
                                                           : linear_q<Q5>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

void linear_k_16(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                 int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  // Where long blocks share registers, fewer of those are left for whole numbers than for floats.
  const auto linear = w.encoding == MatrixEncoding::q5_k   ? linear_superblocks<Q5K, 2>
                      : w.encoding == MatrixEncoding::q6_k ? linear_superblocks<Q6K, 2>
                      : w.encoding != MatrixEncoding::q4_k ? linear_pairs<Q5>
                      : is_long(x)                         ? linear_pairs<Q4K>
                                                           : linear_superblocks<Q4K, 2>;
  linear(x, w, bias, tile_begin, tile_end, y, ldy);
}

}  // namespace
}  // namespace satchel

#include "table.inl"

namespace satchel {

constexpr KernelTable with_own(KernelTable table) {
  table.attention = attention_by_length;
  table.linear_q4_16 = linear_pairs<Q4>;
  table.linear_q8_16 = linear_pairs<Q8>;
  table.linear_k_16 = linear_k_16;
  table.unpacks_for_tokens = kLongBlock;
  return table;
}

constinit const KernelTable avx512_table = with_own(make_table("avx512"));

}  // namespace satchel
