// attention_full and attention_qkv: all queries over all keys.
//
// Keys and values are packed as matrices of floats, so that scores and results are the products of
// linear layers. Long rows of scores come in blocks of keys, so that they never leave the cache.
#include <algorithm>
#include <cmath>
#include <limits>

#include "../attention_windows.h"

namespace satchel {

namespace {

constexpr int64_t kKeys = 1024;        // in a block
constexpr int64_t kQueries = 28;       // whose scores are held at a time
constexpr int64_t kItemQueries = 224;  // of one head, in a piece of work: they share the packing

// Rows of all heads, with any step between them.
struct Heads {
  const float* data;
  int64_t tokens, size, step;  // tokens: of one entry

  const float* at(int64_t row, int64_t head) const { return data + row * step + head * size; }
};

struct Problem {
  Heads q, k, v;
  Windows windows;
  float scale;
  float* out;  // [rows, heads, v.size]

  // Without rows of their own, keys are counted like queries, but there may be another number of
  // them.
  int64_t key_row(int64_t entry, int64_t key) const {
    return windows.rows ? windows.row(entry, key) : entry * k.tokens + key;
  }
};

// A thread's scratch, in floats.
struct Layout {
  int64_t keys, values, queries, scores, part, out, state, total;

  explicit Layout(const Problem& p) {
    const int64_t block = std::min(kKeys, p.k.tokens), item = std::min(kItemQueries, p.q.tokens);
    keys = 0;
    values = keys + whole_tiles(block) * p.k.size;
    queries = values + whole_tiles(p.v.size) * block;
    scores = queries + (p.windows.rows ? kQueries * p.q.size : 0);
    part = scores + kQueries * whole_tiles(block);
    out = part + kQueries * p.v.size;
    state = out + (p.k.tokens > kKeys ? item * p.v.size : 0);
    total = whole_tiles(state + item * 3);
  }
};

// Rows of values to tiles of 16 columns, [cols/16][rows][16].
template <typename Row>
void pack_values(int64_t rows, int64_t cols, Row row, float* out) {
  for (int64_t first = 0; first < cols; first += kTileRows) {
    const int64_t n = std::min(kTileRows, cols - first);
    for (int64_t r = 0; r < rows; ++r, out += kTileRows) {
      const float* from = row(r) + first;
      if (n == kTileRows) {
        std::memcpy(out, from, kTileRows * sizeof(float));
      } else {
        std::fill(std::copy_n(from, n, out), out + kTileRows, 0.0f);
      }
    }
  }
}

PackedMatrix matrix(const float* data, int64_t rows, int64_t cols) {
  return {MatrixEncoding::f32, rows, cols, 0, reinterpret_cast<const uint8_t*>(data), nullptr};
}

// A query that sees no key at all gets nothing: 0.
void put(const Problem& p, int64_t entry, int64_t head, int64_t query, const float* from,
         const SoftmaxState& state) {
  float* to = p.out + (p.windows.row(entry, query) * p.windows.heads + head) * p.v.size;
  if (state.largest == -std::numeric_limits<float>::infinity()) {
    std::fill_n(to, p.v.size, 0.0f);
    return;
  }
  const float factor = 1.0f / state.total;
  for (int64_t d = 0; d < p.v.size; ++d) to[d] = from[d] * factor;
}

// The queries [begin, end) of one head, at most kItemQueries.
void attend(const Problem& p, const KernelTable& k, int64_t entry, int64_t head, int64_t begin,
            int64_t end, float* scratch) {
  const Layout at(p);
  auto* states = reinterpret_cast<SoftmaxState*>(scratch + at.state);
  for (int64_t i = 0; i < end - begin; ++i)
    states[i] = {-std::numeric_limits<float>::infinity(), 0.0f, 0.0f};
  const bool one_block = p.k.tokens <= kKeys;
  if (!one_block) std::fill_n(scratch + at.out, (end - begin) * p.v.size, 0.0f);
  for (int64_t key = 0; key < p.k.tokens; key += kKeys) {
    const int64_t keys = std::min(kKeys, p.k.tokens - key);
    pack_transposed(
        keys, p.k.size, 0, [&](int64_t i) { return p.k.at(p.key_row(entry, key + i), head); },
        reinterpret_cast<uint32_t*>(scratch + at.keys));
    pack_values(
        keys, p.v.size, [&](int64_t i) { return p.v.at(p.key_row(entry, key + i), head); },
        scratch + at.values);
    for (int64_t first = begin; first < end; first += kQueries) {
      const int64_t rows = std::min(kQueries, end - first);
      float *scores = scratch + at.scores, *part = scratch + at.part;
      const float* queries = p.q.at(p.windows.row(entry, first), head);
      int64_t step = p.q.step;
      if (p.windows.rows) {
        step = p.q.size;
        for (int64_t i = 0; i < rows; ++i) {
          std::copy_n(p.q.at(p.windows.row(entry, first + i), head), step,
                      scratch + at.queries + i * step);
        }
        queries = scratch + at.queries;
      }
      k.linear_f32(queries, step, rows, matrix(scratch + at.keys, keys, p.k.size), nullptr,
                   Activation::none, 0, whole_tiles(keys) / kTileRows, scores, keys);
      for (int64_t i = 0; i < rows; ++i) {
        const float* bias = p.windows.bias_row(entry, head, first + i);
        k.softmax_block(scores + i * keys, keys, p.scale, bias ? bias + key : nullptr,
                        &states[first - begin + i]);
      }
      k.linear_f32(scores, keys, rows, matrix(scratch + at.values, p.v.size, keys), nullptr,
                   Activation::none, 0, whole_tiles(p.v.size) / kTileRows, part, p.v.size);
      for (int64_t i = 0; i < rows; ++i) {
        const SoftmaxState& state = states[first - begin + i];
        if (one_block) {
          put(p, entry, head, first + i, part + i * p.v.size, state);
        } else {
          float* sum = scratch + at.out + (first - begin + i) * p.v.size;
          k.blend(sum, state.correction, part + i * p.v.size, 1.0f, p.v.size);
        }
      }
    }
  }
  for (int64_t i = 0; !one_block && i < end - begin; ++i) {
    put(p, entry, head, begin + i, scratch + at.out + i * p.v.size, states[i]);
  }
}

void run(const Problem& p, const Workspace& work) {
  require_rows(p.windows);
  const int64_t pieces = (p.q.tokens + kItemQueries - 1) / kItemQueries,
                items = p.windows.entries * p.windows.heads;
  const auto own = static_cast<size_t>(Layout(p).total);
  const int64_t grain =
      std::clamp<int64_t>(items * pieces / (4 * work.pool.size()), 1, p.windows.heads);
  work.pool.parallel_for(items * pieces, grain, [&](int64_t first, int64_t last, int thread) {
    float* scratch = reinterpret_cast<float*>(work.scratch) + static_cast<size_t>(thread) * own;
    for (int64_t item = first; item < last; ++item) {
      const int64_t head = item / pieces, begin = item % pieces * kItemQueries;
      attend(p, work.kernels, head / p.windows.heads, head % p.windows.heads, begin,
             std::min(begin + kItemQueries, p.q.tokens), scratch);
    }
  });
}

size_t scratch_of(const Problem& p, int threads) {
  return static_cast<size_t>(Layout(p).total) * sizeof(float) * static_cast<size_t>(threads);
}

// --- attention_full(q, k, v, bias?) ---

Heads heads_of(const Tensor& t) {
  return {t.f32(), t.shape[1], t.shape[3], t.shape[2] * t.shape[3]};
}

Problem full_problem(const NodeCall& call) {
  const Tensor& q = call.in(0);
  Problem p{};
  p.q = heads_of(q), p.k = heads_of(call.in(1)), p.v = heads_of(call.in(2));
  p.windows.entries = q.shape[0], p.windows.tokens = q.shape[1], p.windows.heads = q.shape[2];
  p.windows.keys = p.k.tokens;
  if (call.has(3)) {
    const Tensor& bias = call.in(3);
    p.windows.bias = bias.f32();
    p.windows.bias_count = bias.shape[0], p.windows.bias_heads = bias.shape[1],
    p.windows.bias_rows = bias.shape[2];
  }
  p.scale = static_cast<float>(call.params.number[0]);
  p.out = call.output->f32();
  return p;
}

void check_full(NodeCall& call) {
  const Tensor &q = call.in(0), &k = call.in(1), &v = call.in(2), &y = *call.output;
  for (const Tensor* t : {&q, &k, &v, &y}) {
    require_array(call, *t, DType::f32);
    require(t->rank == 4 && t->shape[0] == q.shape[0] && t->shape[2] == q.shape[2], call,
            "need q, k and v [B, T, H, D] of the same batch and heads");
  }
  require(k.shape[3] == q.shape[3] && k.shape[1] == v.shape[1] && y.shape[1] == q.shape[1] &&
              y.shape[3] == v.shape[3],
          call, "the sizes do not fit");
  check_bias(call, 3, q.shape[0], q.shape[2], q.shape[1], k.shape[1]);
  call.params.number[0] = number_attribute(call, "scale");
}

size_t full_scratch(const NodeCall& call, int threads) {
  return scratch_of(full_problem(call), threads);
}

void run_full(const NodeCall& call, const Workspace& work) { run(full_problem(call), work); }

// --- attention_qkv(qkv, bias?, rows?, kinds?) ---

Problem qkv_problem(const NodeCall& call) {
  const Tensor& x = call.in(0);
  const int64_t size = x.shape[4], width = x.shape[3] * size;
  Problem p{};
  p.windows = windows_of(call, 1);
  p.q = {x.f32(), p.windows.tokens, size, 3 * width};
  p.k = p.v = p.q;
  if (x.data) p.k.data += width, p.v.data += 2 * width;
  p.scale = static_cast<float>(call.params.number[0]);
  p.out = call.output->f32();
  return p;
}

void check_qkv(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  require_array(call, x, DType::f32);
  require_array(call, y, DType::f32);
  require(x.rank == 5 && x.shape[2] == 3 && y.rank == 4 &&
              std::equal(y.shape, y.shape + 2, x.shape) &&
              std::equal(y.shape + 2, y.shape + 4, x.shape + 3),
          call, "need x [B, T, 3, H, D] and an output [B, T, H, D]");
  check_windows(call, 1);
  call.params.number[0] = number_attribute(call, "scale");
}

size_t qkv_scratch(const NodeCall& call, int threads) {
  return scratch_of(qkv_problem(call), threads);
}

void run_qkv(const NodeCall& call, const Workspace& work) { run(qkv_problem(call), work); }

const OpDef kOps[] = {
    {{"attention_full", 3, 4, false, {"scale"}, check_full}, {run_full, full_scratch}},
    {{"attention_qkv", 1, 4, false, {"scale"}, check_qkv}, {run_qkv, qkv_scratch}},
};

}  // namespace

std::span<const OpDef> attention_full_ops() { return kOps; }

}  // namespace satchel
