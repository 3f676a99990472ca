// Quantised linear layers with sdot: four columns of four rows by four activations.
// Included after linear_neon.inl, in files compiled with dotprod.

namespace satchel {
namespace {

// Each sdot takes its four activations from a lane of 16 that are loaded at once.
template <int M, int V, int Lane>
inline void add_dots(int8x16_t weights, const int8x16_t* x, int v, int32x4_t (*dots)[V]) {
  SATCHEL_UNROLL
  for (int m = 0; m < M; ++m) dots[m][v] = vdotq_laneq_s32(dots[m][v], weights, x[m], Lane);
}

struct Q4Dot : Q4Layout {
  template <int M, int V, int Lane>
  static inline void step(Operands& o, const int8x16_t* x, int32x4_t (*dots)[V]) {
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) {
      const uint8x16_t bytes = o.weights(v);
      add_dots<M, V, Lane>(low_nibbles(bytes), x, v, dots);
      add_dots<M, V, Lane + 1>(high_nibbles(bytes), x, v, dots);
    }
    o.codes += 64;
  }

  template <int M, int V>
  static inline void add(Operands& o, int64_t columns, int32x4_t (*dots)[V]) {
    int8x16_t x[M];
    for (; columns >= 16; columns -= 16, o.x += 16) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) x[m] = vld1q_s8(o.x + m * o.stride);
      step<M, V, 0>(o, x, dots);
      step<M, V, 2>(o, x, dots);
    }
    if (columns > 0) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        x[m] = vcombine_s8(vld1_s8(o.x + m * o.stride), vdup_n_s8(0));
      }
      step<M, V, 0>(o, x, dots);
      o.x += 8;
    }
  }
};

struct Q4StepsDot : Q4Dot {
  template <int T>
  using Scales = StepScales;
};

struct Q8Dot : Q8Layout {
  template <int M, int V, int Lane>
  static inline void step(Operands& o, const int8x16_t* x, int32x4_t (*dots)[V]) {
    SATCHEL_UNROLL
    for (int v = 0; v < V; ++v) add_dots<M, V, Lane>(signed_bytes(o.weights(v)), x, v, dots);
    o.codes += 64;
  }

  template <int M, int V>
  static inline void add(Operands& o, int64_t columns, int32x4_t (*dots)[V]) {
    int8x16_t x[M];
    for (; columns >= 16; columns -= 16, o.x += 16) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) x[m] = vld1q_s8(o.x + m * o.stride);
      step<M, V, 0>(o, x, dots);
      step<M, V, 1>(o, x, dots);
      step<M, V, 2>(o, x, dots);
      step<M, V, 3>(o, x, dots);
    }
    for (; columns > 0; columns -= 4, o.x += 4) {
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) x[m] = broadcast4(o.x + m * o.stride);
      step<M, V, 0>(o, x, dots);
    }
  }
};

template <class Layout>
struct PackedDot {
  static constexpr int64_t kColumnBytes = Layout::kColumnBytes;

  template <int M, int V>
  static inline void add(Operands& o, int64_t columns, int32x4_t (*dots)[V]) {
    for (; columns > 0; columns -= Layout::kColumns) {
      int8x16_t x[M][Layout::kColumns / 16];
      SATCHEL_UNROLL
      for (int m = 0; m < M; ++m) {
        SATCHEL_UNROLL
        for (int i = 0; i < Layout::kColumns / 16; ++i) {
          x[m][i] = vld1q_s8(o.x + m * o.stride + 16 * i);
        }
      }
      SATCHEL_UNROLL
      for (int v = 0; v < V; ++v) {
        const PackedLines<Layout> lines(o.vector(v));
        SATCHEL_UNROLL
        for (int i = 0; i < Layout::kColumns / 16; ++i) {
          const int8x16_t weights[4] = {lines.four(4 * i), lines.four(4 * i + 1),
                                        lines.four(4 * i + 2), lines.four(4 * i + 3)};
          SATCHEL_UNROLL
          for (int m = 0; m < M; ++m) {
            dots[m][v] = vdotq_laneq_s32(dots[m][v], weights[0], x[m][i], 0);
            dots[m][v] = vdotq_laneq_s32(dots[m][v], weights[1], x[m][i], 1);
            dots[m][v] = vdotq_laneq_s32(dots[m][v], weights[2], x[m][i], 2);
            dots[m][v] = vdotq_laneq_s32(dots[m][v], weights[3], x[m][i], 3);
          }
        }
      }
      o.codes += Layout::kStepBytes, o.x += Layout::kColumns;
    }
  }
};

using Q5Dot = HalfScaled5<PackedDot<Bits5>>;
using Q4KDot = SixBitScaled<Q4Dot>;
using Q5KDot = SixBitScaled<PackedDot<Bits5>>;
using Q6KDot = ByteScaled6<PackedDot<Bits6>>;

// Two tiles at once for a single row: eight chains of sums, and two streams of weights.
// Four rows by a tile: the sums of a group fill half of the registers.
template <class Code>
void linear_dot(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) {
  linear_rows<Code, 8, 4, 4>(x, w, bias, tile_begin, tile_end, y, ldy);
}

}  // namespace
}  // namespace satchel
