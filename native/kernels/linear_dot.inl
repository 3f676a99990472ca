// Quantised linear layers with sdot: four columns of four rows by four activations.
// Included after linear_neon.inl, in files compiled with dotprod.

namespace satchel {
namespace {

// Each sdot takes its four activations from a lane of 16 that are loaded at once.
template <int V, int Lane>
inline void add_dots(int8x16_t weights, const int8x16_t* x, int M, int v, int32x4_t (*dots)[V]) {
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) dots[m][v] = vdotq_laneq_s32(dots[m][v], weights, x[m], Lane);
}

struct Q4Dot : Q4Layout {
  template <int M, int V, int Lane>
  static inline void step(const Vectors& weights, int64_t s, const int8x16_t* x,
                          int32x4_t (*dots)[V]) {
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) {
      const uint8x16_t bytes = vld1q_u8(weights.at(v, s));
      add_dots<V, Lane>(low_nibbles(bytes), x, M, v, dots);
      add_dots<V, Lane + 1>(high_nibbles(bytes), x, M, v, dots);
    }
  }

  template <int M, int V>
  static inline void add(const Vectors& weights, const int8_t* x, int64_t stride, int64_t begin,
                         int64_t end, int32x4_t (*dots)[V]) {
    int8x16_t codes[M];
    int64_t c = begin;
    for (; c + 16 <= end; c += 16) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) codes[m] = vld1q_s8(x + m * stride + c);
      step<M, V, 0>(weights, c / 8, codes, dots);
      step<M, V, 2>(weights, c / 8 + 1, codes, dots);
    }
    if (c < end) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        codes[m] = vcombine_s8(vld1_s8(x + m * stride + c), vdup_n_s8(0));
      }
      step<M, V, 0>(weights, c / 8, codes, dots);
    }
  }
};

struct Q8Dot : Q8Layout {
  template <int M, int V, int Lane>
  static inline void step(const Vectors& weights, int64_t s, const int8x16_t* x,
                          int32x4_t (*dots)[V]) {
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) {
      add_dots<V, Lane>(signed_bytes(vld1q_u8(weights.at(v, s))), x, M, v, dots);
    }
  }

  template <int M, int V>
  static inline void add(const Vectors& weights, const int8_t* x, int64_t stride, int64_t begin,
                         int64_t end, int32x4_t (*dots)[V]) {
    int8x16_t codes[M];
    int64_t c = begin;
    for (; c + 16 <= end; c += 16) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) codes[m] = vld1q_s8(x + m * stride + c);
      step<M, V, 0>(weights, c / 4, codes, dots);
      step<M, V, 1>(weights, c / 4 + 1, codes, dots);
      step<M, V, 2>(weights, c / 4 + 2, codes, dots);
      step<M, V, 3>(weights, c / 4 + 3, codes, dots);
    }
    for (; c < end; c += 4) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) codes[m] = broadcast4(x + m * stride + c);
      step<M, V, 0>(weights, c / 4, codes, dots);
    }
  }
};

// Two tiles at once for a single row: eight chains of sums, and two streams of weights.
// Four rows by half a tile: sums and results of a block fit in the registers together.
template <class Code>
void linear_dot(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  linear_rows<Code, 8, 4, 2>(x, w, bias, tile_begin, tile_end, y, ldy);
}

}  // namespace
}  // namespace satchel
