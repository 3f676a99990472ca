// Attention of long blocks of queries, computing what attention.inl does in another order.
//
// The keys of a block are transposed, so that a register holds the same value of 16 keys, and
// nothing has to be summed across a register; both products are then the same small matrix product.
// Turning pays if many rows use the block. The weights of the softmax are powers of two, made of
// the scores in registers. Included after attention.inl, for AVX-512.

#include "attention_transposed.inl"

namespace satchel {
namespace {

// kLongRows rows by four registers of keys or values are 24 sums.
constexpr int kLongColumns = 4 * kLanes;
static_assert(kLongColumns == kKeyBlock);

// A row's view of the current block of keys, [begin, end) of it, and its largest score so far.
struct LongRow {
  int32_t begin, end;
  float highest, rescale;
};
static_assert(sizeof(LongRow) == kLongRowFloats * sizeof(float));

// acc[r][c] += sum over i of a[r][i] * b[i][c], c in C registers.
template <int C>
inline void add_matrix_product(const float* a, int64_t lda, const float* b, int64_t ldb, int64_t n,
                               F (*acc)[C]) {
  for (int64_t i = 0; i < n; ++i, b += ldb) {
    F columns[C];
    SATCHEL_UNROLL
    for (int c = 0; c < C; ++c) columns[c] = load(b + c * kLanes);
    SATCHEL_UNROLL
    for (int r = 0; r < kLongRows; ++r) {
      const F factor = broadcast(a[r * lda + i]);
      SATCHEL_UNROLL
      for (int c = 0; c < C; ++c) acc[r][c] = fma(factor, columns[c], acc[r][c]);
    }
  }
}

// Values from d on of a row; zeros behind its end.
template <class Cache>
inline F row_part(const Cache* row, int64_t d, int64_t dim) {
  if (d >= dim) return broadcast(0.0f);
  return d + kLanes <= dim ? load_cache(row + d) : load_cache_n(row + d, dim - d);
}

// `count` keys as [padded][kKeyBlock], and values as [kKeyBlock][padded], zeros where there are
// none.
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

// Which lanes are in [begin, end), the first one counting as `first`.
inline __mmask16 lanes_between(int first, int32_t begin, int32_t end) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 seen = _mm512_cmpge_epi32_mask(lanes, _mm512_set1_epi32(begin - first));
  return _mm512_mask_cmplt_epi32_mask(seen, lanes, _mm512_set1_epi32(end - first));
}

// A row's scores as weights 2^((score - highest) * factor), zero outside of [begin, end), which
// `total` takes in lane by lane. `scale` is not negative.
template <int C>
inline void long_weights(float scale, float softcap, F* scores, LongRow& row, float* total,
                         float* weights) {
  float factor = scale * kLog2E;
  if (softcap > 0.0f) {
    const F cap = broadcast(softcap), inner = broadcast(scale / softcap);
    SATCHEL_UNROLL
    for (int c = 0; c < C; ++c) scores[c] = hyperbolic_tangent(scores[c] * inner) * cap;
    factor = kLog2E;
  }
  __mmask16 seen[C];
  F top = broadcast(kLowest);
  SATCHEL_UNROLL
  for (int c = 0; c < C; ++c) {
    seen[c] = lanes_between(c * kLanes, row.begin, row.end);
    top = _mm512_mask_max_ps(top, seen[c], top, scores[c]);
  }
  const float block_highest = highest(top);
  const float new_highest = block_highest > row.highest ? block_highest : row.highest;
  row.rescale = _mm512_cvtss_f32(power_of_two(broadcast((row.highest - new_highest) * factor)));
  row.highest = new_highest;
  F sum = load(total) * broadcast(row.rescale);
  SATCHEL_UNROLL
  for (int c = 0; c < C; ++c) {
    // The difference first: scores may be large.
    const F power = power_of_two((scores[c] - broadcast(new_highest)) * broadcast(factor));
    const F weight = _mm512_maskz_mov_ps(seen[c], power);
    sum = sum + weight;
    store(weights + c * kLanes, weight);
  }
  store(total, sum);
}

// kLongRows rows against the first C registers of a block of keys, of which they see [begin, end).
template <int C>
inline void attend_long_block(const AttentionArgs& args, const float* keys, const float* values,
                              int64_t begin, int64_t end, const float* q, float* acc,
                              int64_t padded, LongRow* rows, float* totals, float* weights) {
  F scores[kLongRows][C];
  SATCHEL_UNROLL
  for (int r = 0; r < kLongRows; ++r) {
    SATCHEL_UNROLL
    for (int c = 0; c < C; ++c) scores[r][c] = broadcast(0.0f);
  }
  add_matrix_product<C>(q, padded, keys, kKeyBlock, args.dim, scores);
  SATCHEL_UNROLL
  for (int r = 0; r < kLongRows; ++r) {
    float* row_weights = weights + r * kKeyBlock;
    if (rows[r].begin < rows[r].end) {
      long_weights<C>(__builtin_fabsf(args.scale), args.softcap, scores[r], rows[r],
                      totals + r * kLanes, row_weights);
    } else {
      for (int c = 0; c < C; ++c) store(row_weights + c * kLanes, broadcast(0.0f));
      rows[r].rescale = 1.0f;
    }
  }
  // The rows of q, acc and values are padded to whole registers, and to four of them by the
  // scratch.
  for (int64_t d = 0; d < padded; d += kLongColumns) {
    F sums[kLongRows][4];
    SATCHEL_UNROLL
    for (int r = 0; r < kLongRows; ++r) {
      SATCHEL_UNROLL
      for (int c = 0; c < 4; ++c) {
        sums[r][c] = load(acc + r * padded + d + c * kLanes) * broadcast(rows[r].rescale);
      }
    }
    add_matrix_product<4>(weights + begin, kKeyBlock, values + begin * padded + d, padded,
                          end - begin, sums);
    SATCHEL_UNROLL
    for (int r = 0; r < kLongRows; ++r) {
      SATCHEL_UNROLL
      for (int c = 0; c < 4; ++c) store(acc + r * padded + d + c * kLanes, sums[r][c]);
    }
  }
}

// kLongRows rows against what they see of a block of keys.
inline void attend_long_rows(const AttentionArgs& args, const float* keys, const float* values,
                             const float* q, float* acc, int64_t padded, LongRow* rows,
                             float* totals, float* weights) {
  int64_t begin = kKeyBlock, end = 0;
  for (int r = 0; r < kLongRows; ++r) {
    if (rows[r].begin >= rows[r].end) continue;
    begin = rows[r].begin < begin ? rows[r].begin : begin;
    end = rows[r].end > end ? rows[r].end : end;
  }
  if (begin >= end) return;
  const auto attend = [&](auto columns) {
    attend_long_block<columns>(args, keys, values, begin, end, q, acc, padded, rows, totals,
                               weights);
  };
  switch ((end + kLanes - 1) / kLanes) {
    case 1:
      return attend(std::integral_constant<int, 1>());
    case 2:
      return attend(std::integral_constant<int, 2>());
    case 3:
      return attend(std::integral_constant<int, 3>());
    default:
      return attend(std::integral_constant<int, 4>());
  }
}

template <class Cache>
void attend_long(const AttentionArgs& args, int64_t kv_head, int64_t query_begin, int64_t query_end,
                 float* scratch) {
  const int64_t group = args.heads / args.kv_heads, dim = args.dim, padded = long_dim(dim);
  const int64_t pass = long_queries(group), capacity_rows = long_rows(group);
  const float sign = args.scale < 0.0f ? -1.0f : 1.0f;
  float* q = scratch;                               // [rows][padded]
  float* acc = q + capacity_rows * padded;          // [rows][padded]
  float* keys = acc + capacity_rows * padded;       // [padded][kKeyBlock]
  float* values = keys + kKeyBlock * padded;        // [kKeyBlock][padded]
  float* weights = values + kKeyBlock * padded;     // [kLongRows][kKeyBlock]
  float* totals = weights + kLongRows * kKeyBlock;  // [rows][kLanes]
  LongRow* states = reinterpret_cast<LongRow*>(totals + capacity_rows * kLanes);

  for (int64_t first = query_begin; first < query_end; first += pass) {
    const int64_t queries = query_end - first < pass ? query_end - first : pass;
    const int64_t rows = queries * group;
    const auto offset = [&](int64_t row) {
      return ((first + row / group) * args.heads + kv_head * group + row % group) * dim;
    };
    // Rows past the last, which fill up a register block, see no keys.
    std::memset(q, 0, sizeof(float) * static_cast<size_t>(2 * capacity_rows * padded));
    std::memset(totals, 0, sizeof(float) * static_cast<size_t>(capacity_rows * kLanes));
    for (int64_t row = 0; row < capacity_rows; ++row) {
      states[row] = LongRow{0, 0, kLowest, 1.0f};
      const float* query = args.q + (row < rows ? offset(row) : 0);
      for (int64_t d = 0; row < rows && d < dim; ++d) q[row * padded + d] = query[d] * sign;
    }
    const int64_t last = args.position + first + queries;
    for (int64_t block = oldest_key(args, first) / kKeyBlock * kKeyBlock; block < last;
         block += kKeyBlock) {
      const int64_t visible = key_in_block(last - block);
      turn_keys(cache_row<Cache>(args, args.k, kv_head, block), dim, padded, visible, keys);
      widen_values(cache_row<Cache>(args, args.v, kv_head, block), dim, padded, visible, values);
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t query = first + row / group;
        states[row].begin = key_in_block(oldest_key(args, query) - block);
        states[row].end = key_in_block(newest_key(args, query) - block);
      }
      for (int64_t row = 0; row < rows; row += kLongRows) {
        attend_long_rows(args, keys, values, q + row * padded, acc + row * padded, padded,
                         states + row, totals + row * kLanes, weights);
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      float* out = args.out + offset(row);
      const float total = sum(load(totals + row * kLanes));
      for (int64_t d = 0; d < dim; ++d) out[d] = acc[row * padded + d] / total;
    }
  }
}

void attention_by_length(const AttentionArgs& args, int64_t kv_head, int64_t query_begin,
                         int64_t query_end, float* scratch) {
  if (!is_long_line(args)) {
    attention(args, kv_head, query_begin, query_end, scratch);
  } else if (args.half_cache) {
    attend_long<uint16_t>(args, kv_head, query_begin, query_end, scratch);
  } else {
    attend_long<float>(args, kv_head, query_begin, query_end, scratch);
  }
}

}  // namespace
}  // namespace satchel
