// Attention of long blocks of queries, computing what attention.inl does in another order.
//
// The keys of a block are turned, so that a register holds the same value of 16 keys, and nothing
// has to be summed across a register; both products are then the same small matrix product. Turning
// pays if many rows use the block. Included after attention.inl, for 16 lanes.

namespace satchel {
namespace {

// kLongRows rows by four registers of keys or values are 24 sums.
constexpr int kLongColumns = 4 * kLanes;
static_assert(kLongColumns == kKeyBlock);

// acc[r][c] += sum over i of a[r][i] * b[i][c], c in four registers.
template <int R>
inline void add_matrix_product(const float* a, int64_t lda, const float* b, int64_t ldb, int64_t n,
                               F (*acc)[4]) {
  for (int64_t i = 0; i < n; ++i, b += ldb) {
    F columns[4];
    SATCHEL_UNROLL
    for (int c = 0; c < 4; ++c) columns[c] = load(b + c * kLanes);
    SATCHEL_UNROLL
    for (int r = 0; r < R; ++r) {
      const F factor = broadcast(a[r * lda + i]);
      SATCHEL_UNROLL
      for (int c = 0; c < 4; ++c) acc[r][c] = fma(factor, columns[c], acc[r][c]);
    }
  }
}

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

inline F row_part(const float* row, int64_t d, int64_t dim) {
  return d + kLanes <= dim ? load(row + d) : load_n(row + d, dim - d);
}
inline F row_part(const uint16_t* row, int64_t d, int64_t dim) {
  return d + kLanes <= dim ? load_half(row + d) : load_half_n(row + d, dim - d);
}

// `count` keys as [padded][kKeyBlock], and values as [kKeyBlock][padded], zeros where there are none.
template <class Cache>
inline void turn_keys(const Cache* k, int64_t dim, int64_t padded, int64_t count, float* out) {
  for (int64_t key = 0; key < kKeyBlock; key += kLanes) {
    for (int64_t d = 0; d < padded; d += kLanes) {
      F rows[16];
      SATCHEL_UNROLL
      for (int i = 0; i < 16; ++i) {
        rows[i] = key + i < count ? row_part(k + (key + i) * dim, d, dim) : broadcast(0.0f);
      }
      transpose16(rows, out + d * kKeyBlock + key, kKeyBlock);
    }
  }
}

template <class Cache>
inline void widen_values(const Cache* v, int64_t dim, int64_t padded, int64_t count, float* out) {
  for (int64_t key = 0; key < count; ++key, out += padded) {
    for (int64_t d = 0; d < padded; d += kLanes) store(out + d, row_part(v + key * dim, d, dim));
  }
}

// R rows against one block of keys; `keys` of them are visible to some row.
template <int R>
inline void attend_long_block(const AttentionArgs& args, const float* keys, const float* values,
                              int64_t visible, const float* q, float* acc, int64_t padded,
                              RowState* rows, float* scores) {
  F sums[R][4];
  SATCHEL_UNROLL
  for (int r = 0; r < R; ++r) {
    SATCHEL_UNROLL
    for (int c = 0; c < 4; ++c) sums[r][c] = broadcast(0.0f);
  }
  add_matrix_product<R>(q, padded, keys, kKeyBlock, args.dim, sums);
  SATCHEL_UNROLL
  for (int r = 0; r < R; ++r) {
    SATCHEL_UNROLL
    for (int c = 0; c < 4; ++c) store(scores + r * kKeyBlock + c * kLanes, sums[r][c]);
  }
  for (int r = 0; r < R; ++r) {
    float* row_scores = scores + r * kKeyBlock;
    if (rows[r].begin < rows[r].end) {
      softmax_weights(args, row_scores, rows[r]);
    } else {
      for (int64_t i = 0; i < kKeyBlock; ++i) row_scores[i] = 0.0f;
      rows[r].rescale = 1.0f;
    }
  }
  // The rows of q, acc and values are padded to whole registers, and to four of them by the scratch.
  for (int64_t d = 0; d < padded; d += kLongColumns) {
    SATCHEL_UNROLL
    for (int r = 0; r < R; ++r) {
      SATCHEL_UNROLL
      for (int c = 0; c < 4; ++c) {
        sums[r][c] = load(acc + r * padded + d + c * kLanes) * broadcast(rows[r].rescale);
      }
    }
    add_matrix_product<R>(scores, kKeyBlock, values + d, padded, visible, sums);
    SATCHEL_UNROLL
    for (int r = 0; r < R; ++r) {
      SATCHEL_UNROLL
      for (int c = 0; c < 4; ++c) store(acc + r * padded + d + c * kLanes, sums[r][c]);
    }
  }
}

template <class Cache>
void attend_long(const AttentionArgs& args, int64_t kv_head, int64_t query_begin,
                 int64_t query_end, float* scratch) {
  const int64_t group = args.heads / args.kv_heads, dim = args.dim, padded = long_dim(dim);
  const int64_t pass = long_queries(group), capacity_rows = pass * group;
  float* q = scratch;                            // [rows][padded]
  float* acc = q + capacity_rows * padded;       // [rows][padded]
  float* keys = acc + capacity_rows * padded;    // [padded][kKeyBlock]
  float* values = keys + kKeyBlock * padded;     // [kKeyBlock][padded]
  float* scores = values + kKeyBlock * padded;   // [kLongRows][kKeyBlock]
  RowState* states = reinterpret_cast<RowState*>(scores + kLongRows * kKeyBlock);
  const Cache* k = static_cast<const Cache*>(args.k) + kv_head * args.capacity * dim;
  const Cache* v = static_cast<const Cache*>(args.v) + kv_head * args.capacity * dim;

  for (int64_t first = query_begin; first < query_end; first += pass) {
    const int64_t queries = query_end - first < pass ? query_end - first : pass;
    const int64_t rows = queries * group;
    const auto offset = [&](int64_t row) {
      return ((first + row / group) * args.heads + kv_head * group + row % group) * dim;
    };
    std::memset(q, 0, sizeof(float) * static_cast<size_t>(2 * capacity_rows * padded));
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(q + row * padded, args.q + offset(row), sizeof(float) * dim);
      states[row] = RowState{0, 0, -__builtin_inff(), 0.0f, 1.0f};
    }
    const auto oldest = [&](int64_t query) {
      const int64_t seen = args.position + query + 1;
      return args.window > 0 && seen > args.window ? seen - args.window : 0;
    };
    const int64_t last = args.position + first + queries;
    for (int64_t block = oldest(first) / kKeyBlock * kKeyBlock; block < last; block += kKeyBlock) {
      const int64_t visible = key_in_block(last - block);
      turn_keys(k + block * dim, dim, padded, visible, keys);
      widen_values(v + block * dim, dim, padded, visible, values);
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t query = first + row / group;
        states[row].begin = key_in_block(oldest(query) - block);
        states[row].end = key_in_block(args.position + query + 1 - block);
      }
      int64_t row = 0;
      for (; row + kLongRows <= rows; row += kLongRows) {
        attend_long_block<kLongRows>(args, keys, values, visible, q + row * padded,
                                     acc + row * padded, padded, states + row, scores);
      }
      for (; row < rows; ++row) {
        attend_long_block<1>(args, keys, values, visible, q + row * padded, acc + row * padded,
                             padded, states + row, scores);
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      float* out = args.out + offset(row);
      const float total = states[row].total;
      for (int64_t d = 0; d < dim; ++d) out[d] = acc[row * padded + d] / total;
    }
  }
}

void attention_by_length(const AttentionArgs& args, int64_t kv_head, int64_t query_begin,
                         int64_t query_end, float* scratch) {
  if (args.queries < kLongBlock || args.byte_cache || args.parents) {
    attention(args, kv_head, query_begin, query_end, scratch);
  } else if (args.half_cache) {
    attend_long<uint16_t>(args, kv_head, query_begin, query_end, scratch);
  } else {
    attend_long<float>(args, kv_head, query_begin, query_end, scratch);
  }
}

}  // namespace
}  // namespace satchel
