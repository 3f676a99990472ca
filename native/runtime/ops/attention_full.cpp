// attention_full and attention_qkv: all queries over all keys.
//
// Keys and values are packed as matrices of floats, so that scores and results are the products of
// linear layers. Long rows of scores come in blocks of keys, so that they never leave the cache.
#include <cmath>
#include <cstring>
#include <limits>

#include "../op.h"

namespace satchel {

namespace {

constexpr int64_t kKeys = 1024;       // in a block
constexpr int64_t kQueries = 28;      // whose scores are held at a time
constexpr int64_t kItemQueries = 224;  // of one head, in a piece of work: they share the packing

// [batch, tokens, heads, size] with any step between tokens.
struct Heads {
  const float* data;
  int64_t tokens, size, token_step;

  const float* at(int64_t batch, int64_t token, int64_t head) const {
    return data + (batch * tokens + token) * token_step + head * size;
  }
};

struct Problem {
  Heads q, k, v;
  int64_t batch, heads;
  const float* bias;
  int64_t bias_batch, bias_heads, bias_rows;
  float scale;
  float* out;  // [batch, queries, heads, v.size]

  const float* bias_row(int64_t b, int64_t head, int64_t query) const {
    if (!bias) return nullptr;
    const int64_t h = bias_heads == 1 ? 0 : head, row = bias_rows == 1 ? 0 : query;
    return bias + ((b % bias_batch * bias_heads + h) * bias_rows + row) * k.tokens;
  }
};

int64_t padded(int64_t n) { return (n + kTileRows - 1) / kTileRows * kTileRows; }

// A thread's scratch, in floats.
struct Layout {
  int64_t keys, values, scores, part, out, state, total;

  explicit Layout(const Problem& p) {
    const int64_t block = std::min(kKeys, p.k.tokens);
    keys = 0;
    values = keys + padded(block) * p.k.size;
    scores = values + padded(p.v.size) * block;
    part = scores + kQueries * padded(block);
    out = part + kQueries * p.v.size;
    state = out + kItemQueries * p.v.size;
    total = padded(state + kItemQueries * 3);
  }
};

// Rows of a matrix to tiles [rows/16][cols][16]: row r of the matrix is at from + r * row_step, and its columns
// are col_step apart.
void pack(const float* from, int64_t rows, int64_t row_step, int64_t cols, int64_t col_step, float* out) {
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int64_t n = std::min(kTileRows, rows - first);
    const float* tile = from + first * row_step;
    for (int64_t c = 0; c < cols; ++c, out += kTileRows) {
      for (int64_t r = 0; r < n; ++r) out[r] = tile[r * row_step + c * col_step];
      for (int64_t r = n; r < kTileRows; ++r) out[r] = 0.0f;
    }
  }
}

PackedMatrix matrix(const float* data, int64_t rows, int64_t cols) {
  return {MatrixEncoding::f32, rows, cols, 0, reinterpret_cast<const uint8_t*>(data), nullptr};
}

// The queries [begin, end) of one head, at most kItemQueries.
void attend(const Problem& p, const KernelTable& k, int64_t b, int64_t head, int64_t begin, int64_t end,
            float* scratch) {
  const Layout at(p);
  auto* states = reinterpret_cast<SoftmaxState*>(scratch + at.state);
  for (int64_t i = 0; i < end - begin; ++i) states[i] = {-std::numeric_limits<float>::infinity(), 0.0f, 0.0f};
  std::fill_n(scratch + at.out, (end - begin) * p.v.size, 0.0f);
  for (int64_t key = 0; key < p.k.tokens; key += kKeys) {
    const int64_t keys = std::min(kKeys, p.k.tokens - key);
    pack(p.k.at(b, key, head), keys, p.k.token_step, p.k.size, 1, scratch + at.keys);
    pack(p.v.at(b, key, head), p.v.size, 1, keys, p.v.token_step, scratch + at.values);
    for (int64_t first = begin; first < end; first += kQueries) {
      const int64_t rows = std::min(kQueries, end - first);
      float *scores = scratch + at.scores, *part = scratch + at.part;
      k.linear_f32(p.q.at(b, first, head), p.q.token_step, rows, matrix(scratch + at.keys, keys, p.k.size), nullptr,
                   Activation::none, 0, padded(keys) / kTileRows, scores, keys);
      for (int64_t i = 0; i < rows; ++i) {
        const float* bias = p.bias_row(b, head, first + i);
        k.softmax_block(scores + i * keys, keys, p.scale, bias ? bias + key : nullptr, &states[first - begin + i]);
      }
      k.linear_f32(scores, keys, rows, matrix(scratch + at.values, p.v.size, keys), nullptr, Activation::none, 0,
                   padded(p.v.size) / kTileRows, part, p.v.size);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = first - begin + i;
        k.blend(scratch + at.out + row * p.v.size, states[row].correction, part + i * p.v.size, 1.0f, p.v.size);
      }
    }
  }
  for (int64_t i = 0; i < end - begin; ++i) {
    const float* from = scratch + at.out + i * p.v.size;
    float* to = p.out + ((b * p.q.tokens + begin + i) * p.heads + head) * p.v.size;
    for (int64_t d = 0; d < p.v.size; ++d) to[d] = from[d] / states[i].total;
  }
}

void run(const Problem& p, const Workspace& work) {
  const int64_t pieces = (p.q.tokens + kItemQueries - 1) / kItemQueries, heads = p.batch * p.heads;
  const auto own = static_cast<size_t>(Layout(p).total);
  work.pool.parallel_for(heads * pieces, 1, [&](int64_t first, int64_t last, int thread) {
    float* scratch = reinterpret_cast<float*>(work.scratch) + static_cast<size_t>(thread) * own;
    for (int64_t item = first; item < last; ++item) {
      const int64_t head = item / pieces, begin = item % pieces * kItemQueries;
      attend(p, work.kernels, head / p.heads, head % p.heads, begin, std::min(begin + kItemQueries, p.q.tokens),
             scratch);
    }
  });
}

void check_bias(const NodeCall& call, size_t input, int64_t batch, int64_t heads, int64_t queries, int64_t keys) {
  if (!call.has(input)) return;
  const Tensor& bias = call.in(input);
  require_array(call, bias, DType::f32);
  require(bias.rank == 4 && batch % bias.shape[0] == 0 && (bias.shape[1] == 1 || bias.shape[1] == heads) &&
              (bias.shape[2] == 1 || bias.shape[2] == queries) && bias.shape[3] == keys,
          call, "the bias does not fit");
}

void set_bias(const NodeCall& call, size_t input, Problem& p) {
  if (!call.has(input)) return;
  const Tensor& bias = call.in(input);
  p.bias = bias.f32();
  p.bias_batch = bias.shape[0], p.bias_heads = bias.shape[1], p.bias_rows = bias.shape[2];
}

size_t scratch_of(const Problem& p, int threads) {
  return static_cast<size_t>(Layout(p).total) * sizeof(float) * static_cast<size_t>(threads);
}

// --- attention_full(q, k, v, bias?) ---

Heads heads_of(const Tensor& t) { return {t.f32(), t.shape[1], t.shape[3], t.shape[2] * t.shape[3]}; }

Problem full_problem(const NodeCall& call) {
  const Tensor& q = call.in(0);
  Problem p{};
  p.q = heads_of(q), p.k = heads_of(call.in(1)), p.v = heads_of(call.in(2));
  p.batch = q.shape[0], p.heads = q.shape[2];
  p.scale = static_cast<float>(call.params.number[0]);
  p.out = call.output->f32();
  set_bias(call, 3, p);
  return p;
}

size_t check_full(NodeCall& call, int threads) {
  const Tensor &q = call.in(0), &k = call.in(1), &v = call.in(2), &y = *call.output;
  for (const Tensor* t : {&q, &k, &v, &y}) {
    require_array(call, *t, DType::f32);
    require(t->rank == 4 && t->shape[0] == q.shape[0] && t->shape[2] == q.shape[2], call,
            "need q, k and v [B, T, H, D] of the same batch and heads");
  }
  require(k.shape[3] == q.shape[3] && k.shape[1] == v.shape[1] && y.shape[1] == q.shape[1] && y.shape[3] == v.shape[3],
          call, "the sizes do not fit");
  check_bias(call, 3, q.shape[0], q.shape[2], q.shape[1], k.shape[1]);
  call.params.number[0] = number_attribute(call, "scale");
  return scratch_of(full_problem(call), threads);
}

void run_full(const NodeCall& call, const Workspace& work) { run(full_problem(call), work); }

// --- attention_qkv(qkv, bias?) ---

Problem qkv_problem(const NodeCall& call) {
  const Tensor& x = call.in(0);
  const int64_t tokens = x.shape[1], heads = x.shape[3], size = x.shape[4], width = heads * size;
  Problem p{};
  p.q = {x.f32(), tokens, size, 3 * width};
  p.k = p.v = p.q;
  if (x.data) p.k.data += width, p.v.data += 2 * width;
  p.batch = x.shape[0], p.heads = heads;
  p.scale = static_cast<float>(call.params.number[0]);
  p.out = call.output->f32();
  set_bias(call, 1, p);
  return p;
}

size_t check_qkv(NodeCall& call, int threads) {
  const Tensor &x = call.in(0), &y = *call.output;
  require_array(call, x, DType::f32);
  require_array(call, y, DType::f32);
  require(x.rank == 5 && x.shape[2] == 3 && y.rank == 4 && std::equal(y.shape, y.shape + 2, x.shape) &&
              std::equal(y.shape + 2, y.shape + 4, x.shape + 3),
          call, "need x [B, T, 3, H, D] and an output [B, T, H, D]");
  check_bias(call, 1, x.shape[0], x.shape[3], x.shape[1], x.shape[1]);
  call.params.number[0] = number_attribute(call, "scale");
  return scratch_of(qkv_problem(call), threads);
}

void run_qkv(const NodeCall& call, const Workspace& work) { run(qkv_problem(call), work); }

const OpDef kOps[] = {
    {"attention_full", 3, 4, false, {"scale"}, check_full, run_full},
    {"attention_qkv", 1, 2, false, {"scale"}, check_qkv, run_qkv},
};

}  // namespace

std::span<const OpDef> attention_full_ops() { return kOps; }

}  // namespace satchel
