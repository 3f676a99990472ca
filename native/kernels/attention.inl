// Attention over a cache in one pass with an online softmax, for any lane width.
// The rows of a pass are the query × head pairs that share a kv head; a register block of them
// goes over the same keys and values. A row's arithmetic does not depend on its neighbours.
// Included inside a lanes_*.h translation unit, after elementwise.inl.

namespace satchel {
namespace {

inline F load_cache(const float* p) { return load(p); }
inline F load_cache(const uint16_t* p) { return load_half(p); }
inline F load_cache_n(const float* p, int64_t n) { return load_n(p, n); }
inline F load_cache_n(const uint16_t* p, int64_t n) { return load_half_n(p, n); }

// An 8-bit cache: the codes; scales and zeros are applied to the scores, and to each value as it
// is read.
inline F load_cache(const uint8_t* p) { return load_codes(p); }
inline F load_cache_n(const uint8_t* p, int64_t n) {
  uint8_t codes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) codes[i] = p[i];
  return load_codes(codes);
}

// Elements from one row of a cache to the next.
template <class Cache>
inline int64_t row_stride(int64_t dim) {
  return sizeof(Cache) == 1 ? dim + kCacheTail : dim;
}

// Where the rows of a block of keys lie: one behind the other, and those of the next block,
template <class Cache>
struct LineRows {
  const Cache* first;
  int64_t stride;
  const Cache* next;
  const Cache* operator[](int64_t key) const { return first + key * stride; }
  const Cache* in_next_block(int64_t key) const { return next + key * stride; }
};

// or, for a query of a tree, wherever its ancestors are.
template <class Cache>
struct PathRows {
  const Cache* rows[kKeyBlock];
  const Cache* operator[](int64_t key) const { return rows[key]; }
  const Cache* in_next_block(int64_t key) const { return rows[key]; }  // there is none
};

// The scales and zeros of a block of rows of an 8-bit cache, side by side.
struct Tails {
  float scale[kKeyBlock] = {}, zero[kKeyBlock] = {};

  template <class Rows>
  void read(const Rows& rows, int64_t dim, int64_t count) {
    for (int64_t key = 0; key < count; ++key) {
      const uint8_t* tail = rows[key] + dim;
      std::memcpy(&scale[key], tail, sizeof(float));
      std::memcpy(&zero[key], tail + sizeof(float), sizeof(float));
    }
  }
};

// What a block needs besides its rows: nothing for floats.
struct NoTails {
  template <class Rows>
  void read(const Rows&, int64_t, int64_t) {}
};
template <class Cache>
struct TailsOf {
  using Type = NoTails;
};
template <>
struct TailsOf<uint8_t> {
  using Type = Tails;
};

inline F dequantize(F code, const NoTails&, int64_t) { return code; }
inline F dequantize(F code, const Tails& tails, int64_t key) {
  return fma(code, broadcast(tails.scale[key]), broadcast(tails.zero[key]));
}

// A row's view of the current block of keys: [begin, end) of it are visible.
struct RowState {
  int32_t begin, end;
  float highest, total, rescale;
};
static_assert(sizeof(RowState) == kRowStateFloats * sizeof(float));

// Asks the memory for the lines of four rows that usually lie one behind the other: to the
// second-level cache, because the first has room for few requests at a time.
template <class Cache>
inline void ask_for_rows(const Cache* rows, int64_t dim) {
  const auto* bytes = reinterpret_cast<const char*>(rows);
  const int64_t size = 4 * row_stride<Cache>(dim) * static_cast<int64_t>(sizeof(Cache));
  for (int64_t at = 0; at < size; at += 64) __builtin_prefetch(bytes + at, 0, 2);
}

// scores[r][key] = q[r] · k[key] for keys [begin, end), four at a time; the last keys are
// computed twice rather than read past the end. Whoever comes first to a block asks for what is
// read next: its values, and the keys of the block after it.
template <int R, class Cache, class Rows>
inline void dot_products(const float* q, int64_t padded, const Rows& k, const Rows& v, bool first,
                         int64_t dim, int64_t begin, int64_t end, float* scores) {
  for (int64_t key = begin / 4 * 4; key < end; key += 4) {
    if (first) {
      ask_for_rows(v[key], dim);
      ask_for_rows(k.in_next_block(key), dim);
    }
    const Cache* keys[4];
    for (int j = 0; j < 4; ++j) keys[j] = k[key + j < end ? key + j : end - 1];
    F acc[R][4];
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < 4; ++j) acc[r][j] = broadcast(0.0f);
    const auto step = [&](int64_t d, const F* columns) {
      SATCHEL_UNROLL
      for (int r = 0; r < R; ++r) {
        const F query = load(q + r * padded + d);
        SATCHEL_UNROLL
        for (int j = 0; j < 4; ++j) acc[r][j] = fma(query, columns[j], acc[r][j]);
      }
    };
    int64_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) {
      const F columns[4] = {load_cache(keys[0] + d), load_cache(keys[1] + d),
                            load_cache(keys[2] + d), load_cache(keys[3] + d)};
      step(d, columns);
    }
    if (d < dim) {
      const int64_t n = dim - d;
      const F columns[4] = {load_cache_n(keys[0] + d, n), load_cache_n(keys[1] + d, n),
                            load_cache_n(keys[2] + d, n), load_cache_n(keys[3] + d, n)};
      step(d, columns);
    }
    for (int r = 0; r < R; ++r) {
      sums4(acc[r][0], acc[r][1], acc[r][2], acc[r][3], scores + r * kKeyBlock + key);
    }
  }
}

// From products with codes to products with keys: q · (scale * codes + zero).
template <int R>
inline void dequantize_scores(const float*, int64_t, const NoTails&, int64_t, int64_t, float*) {}
template <int R>
inline void dequantize_scores(const float* q, int64_t padded, const Tails& tails, int64_t begin,
                              int64_t end, float* scores) {
  for (int r = 0; r < R; ++r) {
    F total = broadcast(0.0f);
    for (int64_t d = 0; d < padded; d += kLanes) total = total + load(q + r * padded + d);
    const F query_sum = broadcast(sum(total));
    float* row = scores + r * kKeyBlock;
    for (int64_t key = begin / kLanes * kLanes; key < end; key += kLanes) {
      const F offset = load(tails.zero + key) * query_sum;
      store(row + key, fma(load(row + key), load(tails.scale + key), offset));
    }
  }
}

// Turns a row of scores into weights exp(score - highest), zero outside [begin, end). Not inlined:
// there are two dozen kinds of blocks, and it is the same for all.
__attribute__((noinline)) void softmax_weights(const AttentionArgs& args, float* scores,
                                               RowState& row) {
  const float minus_infinity = -__builtin_inff();
  const int64_t width = (row.end + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = row.begin / kLanes * kLanes; i < width; i += kLanes) {
    F score = load(scores + i) * broadcast(args.scale);
    if (args.softcap > 0.0f) {
      const F cap = broadcast(args.softcap);
      score = hyperbolic_tangent(score / cap) * cap;
    }
    store(scores + i, score);
  }
  for (int64_t i = 0; i < row.begin; ++i) scores[i] = minus_infinity;
  for (int64_t i = row.end; i < width; ++i) scores[i] = minus_infinity;
  F top = broadcast(minus_infinity);
  for (int64_t i = 0; i < width; i += kLanes) top = larger(top, load(scores + i));
  const float block_highest = highest(top);
  const float new_highest = block_highest > row.highest ? block_highest : row.highest;
  F total = broadcast(0.0f);
  for (int64_t i = 0; i < width; i += kLanes) {
    const F weight = exponential(load(scores + i) - broadcast(new_highest));
    store(scores + i, weight);
    total = total + weight;
  }
  for (int64_t i = width; i < kKeyBlock; ++i) scores[i] = 0.0f;
  float rescale[kLanes];
  store(rescale, exponential(broadcast(row.highest - new_highest)));
  row.rescale = rescale[0];
  row.total = row.total * row.rescale + sum(total);
  row.highest = new_highest;
}

// acc[r][d] = acc[r][d] * rescale[r] + sum of weight[r][key] * v[key][d], D vectors of d.
template <int R, int D, class Load>
inline void weighted_sum(float* acc, int64_t padded, const RowState* rows, const float* weights,
                         int64_t begin, int64_t end, Load value) {
  F sums[R][D];
  SATCHEL_UNROLL
  for (int r = 0; r < R; ++r) {
    SATCHEL_UNROLL
    for (int d = 0; d < D; ++d) {
      sums[r][d] = load(acc + r * padded + d * kLanes) * broadcast(rows[r].rescale);
    }
  }
  for (int64_t key = begin; key < end; ++key) {
    F values[D];
    SATCHEL_UNROLL
    for (int d = 0; d < D; ++d) values[d] = value(key, d);
    SATCHEL_UNROLL
    for (int r = 0; r < R; ++r) {
      const F weight = broadcast(weights[r * kKeyBlock + key]);
      SATCHEL_UNROLL
      for (int d = 0; d < D; ++d) sums[r][d] = fma(weight, values[d], sums[r][d]);
    }
  }
  SATCHEL_UNROLL
  for (int r = 0; r < R; ++r) {
    SATCHEL_UNROLL
    for (int d = 0; d < D; ++d) store(acc + r * padded + d * kLanes, sums[r][d]);
  }
}

// One register block of rows against one block of keys.
template <int R, class Cache, class Rows, class CacheTails>
inline void attend_block(const AttentionArgs& args, const Rows& k, const Rows& v, bool first,
                         const CacheTails& k_tails, const CacheTails& v_tails, const float* q,
                         float* acc, int64_t padded, RowState* rows, float* scores) {
  int64_t begin = kKeyBlock, end = 0;
  for (int r = 0; r < R; ++r) {
    if (rows[r].begin >= rows[r].end) continue;
    begin = rows[r].begin < begin ? rows[r].begin : begin;
    end = rows[r].end > end ? rows[r].end : end;
  }
  if (begin >= end) return;
  dot_products<R, Cache>(q, padded, k, v, first, args.dim, begin, end, scores);
  dequantize_scores<R>(q, padded, k_tails, begin, end, scores);
  for (int r = 0; r < R; ++r) {
    float* row_scores = scores + r * kKeyBlock;
    if (rows[r].begin < rows[r].end) {
      softmax_weights(args, row_scores, rows[r]);
    } else {
      for (int64_t i = 0; i < kKeyBlock; ++i) row_scores[i] = 0.0f;
      rows[r].rescale = 1.0f;
    }
  }
  const int64_t dim = args.dim;
  int64_t d = 0;
  for (; d + 4 * kLanes <= dim; d += 4 * kLanes) {
    weighted_sum<R, 4>(acc + d, padded, rows, scores, begin, end, [&](int64_t key, int i) {
      return dequantize(load_cache(v[key] + d + i * kLanes), v_tails, key);
    });
  }
  for (; d < dim; d += kLanes) {
    const int64_t n = dim - d;
    if (n >= kLanes) {
      weighted_sum<R, 1>(acc + d, padded, rows, scores, begin, end, [&](int64_t key, int) {
        return dequantize(load_cache(v[key] + d), v_tails, key);
      });
    } else {
      weighted_sum<R, 1>(acc + d, padded, rows, scores, begin, end, [&](int64_t key, int) {
        return dequantize(load_cache_n(v[key] + d, n), v_tails, key);
      });
    }
  }
}

// Some rows against one block of keys, as many at a time as share registers.
template <class Cache, class Rows, class CacheTails>
inline void attend_rows(const AttentionArgs& args, const Rows& k, const Rows& v,
                        CacheTails& k_tails, CacheTails& v_tails, int64_t keys, const float* q,
                        float* acc, int64_t padded, RowState* states, int64_t rows, float* scores) {
  k_tails.read(k, args.dim, keys);
  v_tails.read(v, args.dim, keys);
  const auto attend = [&](auto count, int64_t row) {
    attend_block<count, Cache>(args, k, v, row == 0, k_tails, v_tails, q + row * padded,
                               acc + row * padded, padded, states + row, scores);
  };
  int64_t row = 0;
  for (; row + kAttentionRows <= rows; row += kAttentionRows) {
    attend(std::integral_constant<int, kAttentionRows>(), row);
  }
  if constexpr (kAttentionRows > 3) {
    if (rows - row == 3) return attend(std::integral_constant<int, 3>(), row);
  }
  if (kAttentionRows > 2 && rows - row >= 2) {
    attend(std::integral_constant<int, 2>(), row);
    row += 2;
  }
  for (; row < rows; ++row) attend(std::integral_constant<int, 1>(), row);
}

// The rows that a query of a tree sees of the block of keys at `block`, up to its own.
template <class Cache>
inline PathRows<Cache> path_rows(const AttentionArgs& args, const void* cache, int64_t kv_head,
                                 int64_t query, int64_t block) {
  PathRows<Cache> path;
  const int64_t end = block + kKeyBlock, stride = row_stride<Cache>(args.dim);
  const int64_t line = args.position < end ? args.position : end;
  const Cache* first = cache_row<Cache>(args, cache, kv_head, block);
  for (int64_t key = block; key < line; ++key)
    path.rows[key - block] = first + (key - block) * stride;
  int64_t key = args.position + args.depths[query];
  for (int64_t node = query; node >= 0 && key >= block; node = args.parents[node], --key) {
    if (key < end)
      path.rows[key - block] = cache_row<Cache>(args, cache, kv_head, args.position + node);
  }
  return path;
}

template <class Cache>
void attend(const AttentionArgs& args, int64_t kv_head, int64_t query_begin, int64_t query_end,
            float* scratch) {
  const int64_t group = args.heads / args.kv_heads, dim = args.dim, padded = padded_dim(dim);
  const int64_t pass = queries_per_pass(group), capacity_rows = pass * group;
  float* q = scratch;                            // [rows][padded]
  float* acc = q + capacity_rows * padded;       // [rows][padded]
  float* scores = acc + capacity_rows * padded;  // [register rows][kKeyBlock]
  RowState* states = reinterpret_cast<RowState*>(scores + kMaxRegisterRows * kKeyBlock);
  const int64_t stride = row_stride<Cache>(dim);
  typename TailsOf<Cache>::Type k_tails, v_tails;
  const auto newest = [&](int64_t query) { return newest_key(args, query); };
  const auto oldest = [&](int64_t query) { return oldest_key(args, query); };

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
    int64_t begin = oldest(first), last = 0;
    for (int64_t query = first; query < first + queries; ++query) {
      begin = oldest(query) < begin ? oldest(query) : begin;
      last = newest(query) > last ? newest(query) : last;
    }
    for (int64_t block = begin / kKeyBlock * kKeyBlock; block < last; block += kKeyBlock) {
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t query = first + row / group;
        states[row].begin = key_in_block(oldest(query) - block);
        states[row].end = key_in_block(newest(query) - block);
      }
      if (!args.parents || block + kKeyBlock <= args.position) {
        const int64_t next = block + kKeyBlock < last ? block + kKeyBlock : block;
        const auto rows_of = [&](const void* cache) {
          return LineRows<Cache>{cache_row<Cache>(args, cache, kv_head, block), stride,
                                 cache_row<Cache>(args, cache, kv_head, next)};
        };
        attend_rows<Cache>(args, rows_of(args.k), rows_of(args.v), k_tails, v_tails,
                           key_in_block(last - block), q, acc, padded, states, rows, scores);
        continue;
      }
      for (int64_t row = 0; row < rows; row += group) {  // each query has a path of its own
        const int64_t query = first + row / group;
        attend_rows<Cache>(args, path_rows<Cache>(args, args.k, kv_head, query, block),
                           path_rows<Cache>(args, args.v, kv_head, query, block), k_tails, v_tails,
                           key_in_block(newest(query) - block), q + row * padded,
                           acc + row * padded, padded, states + row, group, scores);
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      float* out = args.out + offset(row);
      const float total = states[row].total;
      for (int64_t d = 0; d < dim; ++d) out[d] = acc[row * padded + d] / total;
    }
  }
}

void attention(const AttentionArgs& args, int64_t kv_head, int64_t query_begin, int64_t query_end,
               float* scratch) {
  if (args.byte_cache) {
    attend<uint8_t>(args, kv_head, query_begin, query_end, scratch);
  } else if (args.half_cache) {
    attend<uint16_t>(args, kv_head, query_begin, query_end, scratch);
  } else {
    attend<float>(args, kv_head, query_begin, query_end, scratch);
  }
}

}  // namespace
}  // namespace satchel
