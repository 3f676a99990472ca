// positions, rope_table, rope, cache_write, cache_move and attention.
#include <cmath>
#include <cstring>

#include "../errors.h"
#include "../op.h"

namespace satchel {

namespace {

// Queries that a thread takes at a time: of long blocks enough that turning the keys for them pays,
// and more of them where every thread still gets many.
constexpr int64_t kQueryBlock = 16, kLongQueryBlock = 32, kManyQueries = 512;
int64_t query_block(int64_t queries, int64_t heads_per_kv) {
  if (queries < 2 * kLongQueryBlock) return kQueryBlock;
  return heads_per_kv > 2 && queries < kManyQueries ? kLongQueryBlock : 2 * kLongQueryBlock;
}
constexpr int32_t kMaxPosition = 1 << 30;  // so that a position plus a number of tokens is an int32

void require_start(const NodeCall& call, const Tensor& start) {
  require_array(call, start, DType::i32);
  require(start.rank == 1 && start.shape[0] == 1, call, "start must be i32[1]");
}

// The position of the first token, with room for all of them in the cache.
int64_t checked_start(const Tensor& start, int64_t tokens, int64_t capacity) {
  const int64_t position = start.i32()[0];
  if (position < 0 || position + tokens > capacity) {
    throw ExecutionError("the tokens " + std::to_string(position) + " to " +
                         std::to_string(position + tokens - 1) + " do not fit in a context of " +
                         std::to_string(capacity));
  }
  return position;
}

// A tree of tokens: each names an earlier one as its parent, or has none (-1) and is a root.
void require_parents(const NodeCall& call, const Tensor& parents, int64_t tokens) {
  require_array(call, parents, DType::i32);
  require(parents.rank == 1 && parents.shape[0] == tokens && tokens <= kMaxPosition, call,
          "parents must be i32[S]");
}

// depths[i] = how many ancestors token i has, so that it is less than the number of tokens.
void find_depths(const Tensor& parents, int32_t* depths) {
  for (int64_t i = 0; i < parents.shape[0]; ++i) {
    const int32_t parent = parents.i32()[i];
    if (parent < -1 || parent >= i) {
      throw ExecutionError("the token " + std::to_string(i) + " cannot have the parent " +
                           std::to_string(parent));
    }
    depths[i] = parent < 0 ? 0 : depths[parent] + 1;
  }
}

// --- positions(start, like, parents?) ---

size_t check_positions(NodeCall& call, int) {
  require_start(call, call.in(0));
  require_array(call, *call.output, DType::i32);
  require(call.in(1).rank >= 1 && call.output->rank == 1 &&
              call.output->shape[0] == call.in(1).shape[0],
          call, "the output does not fit");
  require(call.output->shape[0] <= kMaxPosition, call, "there are too many positions");
  if (call.has(2)) require_parents(call, call.in(2), call.output->shape[0]);
  return 0;
}

void run_positions(const NodeCall& call, const Workspace&) {
  const int32_t start = call.in(0).i32()[0];
  if (start < 0 || start >= kMaxPosition)
    throw ExecutionError("the position " + std::to_string(start) + " is out of range");
  int32_t* out = call.output->i32();
  if (call.has(2)) {
    find_depths(call.in(2), out);
    for (int64_t i = 0; i < call.output->shape[0]; ++i) out[i] += start;
  } else {
    for (int64_t i = 0; i < call.output->shape[0]; ++i) out[i] = start + static_cast<int32_t>(i);
  }
}

// --- rope_table(positions, inverse_frequencies) ---

size_t check_rope_table(NodeCall& call, int) {
  const Tensor &positions = call.in(0), &frequencies = call.in(1), &y = *call.output;
  require_array(call, positions, DType::i32);
  require_array(call, frequencies, DType::f32);
  require_array(call, y, DType::f32);
  require(positions.rank == 1 && frequencies.rank == 1 && y.rank == 2 &&
              y.shape[0] == positions.shape[0] && y.shape[1] == 2 * frequencies.shape[0],
          call, "the sizes do not fit");
  call.params.number[0] = number_attribute(call, "scale", 1.0);
  return 0;
}

void run_rope_table(const NodeCall& call, const Workspace& work) {
  const Tensor &positions = call.in(0), &frequencies = call.in(1), &y = *call.output;
  const int64_t half = frequencies.shape[0], rows = positions.shape[0];
  const double scale = call.params.number[0];
  work.pool.parallel_for(
      rows, grain_for(rows, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          float* out = y.f32() + row * 2 * half;
          for (int64_t i = 0; i < half; ++i) {
            const float angle = static_cast<float>(positions.i32()[row]) * frequencies.f32()[i];
            out[i] = static_cast<float>(std::cos(static_cast<double>(angle)) * scale);
            out[half + i] = static_cast<float>(std::sin(static_cast<double>(angle)) * scale);
          }
        }
      });
}

// --- rope(x, table) ---

size_t check_rope(NodeCall& call, int) {
  const Tensor &x = call.in(0), &table = call.in(1), &y = *call.output;
  for (const Tensor* t : {&x, &table, &y}) require_array(call, *t, DType::f32);
  require(x.rank == 3 && table.rank == 2 && same_shape(x, y), call,
          "need x [S, H, D] and a table [S, R]");
  require(table.shape[0] == x.shape[0] && table.shape[1] <= x.shape[2] && table.shape[1] % 2 == 0,
          call, "the table does not fit");
  return 0;
}

void run_rope(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &table = call.in(1);
  const int64_t rows = x.shape[0], heads = x.shape[1], dim = x.shape[2], rotary = table.shape[1];
  work.pool.parallel_for(
      rows, grain_for(rows, work.pool.size(), 2), [&](int64_t begin, int64_t end, int) {
        work.kernels.rope(x.f32() + begin * heads * dim, table.f32() + begin * rotary, end - begin,
                          heads, dim, rotary, call.output->f32() + begin * heads * dim);
      });
}

// --- cache_write(cache, x, start) ---

bool is_cache(const Tensor& t) {
  return t.rank == 3 && (t.dtype == DType::f32 || t.dtype == DType::f16 || t.dtype == DType::u8);
}

// Elements of a cache that holds vectors of `dim` numbers: those of 8 bits have scale and zero
// behind them.
int64_t cache_row(const Tensor& cache, int64_t dim) {
  return cache.dtype == DType::u8 ? dim + kCacheTail : dim;
}

size_t check_cache_write(NodeCall& call, int) {
  const Tensor &cache = call.in(0), &x = call.in(1);
  require(is_cache(cache) && !cache.weight, call, "the cache must be f32, f16 or u8 [H, C, D]");
  require_array(call, x, DType::f32);
  require_start(call, call.in(2));
  require(
      x.rank == 3 && x.shape[1] == cache.shape[0] && cache_row(cache, x.shape[2]) == cache.shape[2],
      call, "x must be [S, H, D]");
  return 0;
}

void run_cache_write(const NodeCall& call, const Workspace& work) {
  const Tensor &cache = call.in(0), &x = call.in(1);
  const int64_t tokens = x.shape[0], heads = x.shape[1], dim = x.shape[2],
                capacity = cache.shape[1];
  const int64_t start = checked_start(call.in(2), tokens, capacity), row = cache.shape[2];
  work.pool.parallel_for(
      tokens, grain_for(tokens, work.pool.size(), 16), [&](int64_t begin, int64_t end, int) {
        for (int64_t item = begin * heads; item < end * heads; ++item) {
          const int64_t t = item / heads, h = item % heads, to = (h * capacity + start + t) * row;
          const float* from = x.f32() + item * dim;
          if (cache.dtype == DType::u8) {
            work.kernels.quantize_cache(from, dim, cache.data + to);
          } else if (cache.dtype == DType::f16) {
            work.kernels.float_to_half(from, dim, cache.f16() + to);
          } else {
            std::copy(from, from + dim, cache.f32() + to);
          }
        }
      });
}

// --- cache_move(cache, rows, start) ---

size_t check_cache_move(NodeCall& call, int) {
  const Tensor& cache = call.in(0);
  require(is_cache(cache) && !cache.weight, call, "the cache must be f32, f16 or u8 [H, C, D]");
  require_array(call, call.in(1), DType::i32);
  require(call.in(1).rank == 1, call, "the rows must be i32[n]");
  require_start(call, call.in(2));
  return 0;
}

void run_cache_move(const NodeCall& call, const Workspace&) {
  const Tensor &cache = call.in(0), &rows = call.in(1);
  const int64_t count = rows.shape[0], heads = cache.shape[0], capacity = cache.shape[1];
  const int64_t start = checked_start(call.in(2), count, capacity);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows.i32()[i];
    // Rising, so that no row is overwritten before it has been moved.
    if (row < 0 || row >= capacity - start || (i > 0 && row <= rows.i32()[i - 1])) {
      throw ExecutionError("the row " + std::to_string(row) +
                           " cannot be moved: rows must rise and lie in the context");
    }
  }
  const size_t bytes = static_cast<size_t>(cache.shape[2]) * dtype_size(cache.dtype);
  for (int64_t head = 0; head < heads; ++head) {
    uint8_t* first = cache.data + static_cast<size_t>(head * capacity + start) * bytes;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = rows.i32()[i];
      if (row != i)
        std::memcpy(first + static_cast<size_t>(i) * bytes,
                    first + static_cast<size_t>(row) * bytes, bytes);
    }
  }
}

// --- attention(q, k, v, start, parents?) ---

size_t check_attention(NodeCall& call, int threads) {
  const Tensor &q = call.in(0), &k = call.in(1), &v = call.in(2);
  require_array(call, q, DType::f32);
  require_array(call, *call.output, DType::f32);
  require(is_cache(k) && k.dtype == v.dtype && same_shape(k, v) && !k.weight && !v.weight, call,
          "k and v must be caches of one type");
  require_start(call, call.in(3));
  require(q.rank == 3 && same_shape(q, *call.output) && cache_row(k, q.shape[2]) == k.shape[2] &&
              q.shape[1] % k.shape[0] == 0,
          call, "q does not fit the caches");
  call.params.number[0] = number_attribute(call, "scale");
  call.params.number[1] = number_attribute(call, "softcap", 0.0);
  call.params.integer[0] = int_attribute(call, "window", 0);
  require(call.params.integer[0] >= 0 && call.params.number[1] >= 0, call,
          "window and softcap must not be negative");
  const size_t scratch = static_cast<size_t>(threads) *
                         attention_scratch(q.shape[1] / k.shape[0], q.shape[2]) * sizeof(float);
  if (!call.has(4)) return scratch;
  require_parents(call, call.in(4), q.shape[0]);
  return scratch + static_cast<size_t>(q.shape[0]) * sizeof(int32_t);  // the depths come last
}

void run_attention(const NodeCall& call, const Workspace& work) {
  const Tensor &q = call.in(0), &k = call.in(1), &v = call.in(2);
  AttentionArgs args{};
  args.q = q.f32(), args.k = k.data, args.v = v.data, args.out = call.output->f32();
  args.queries = q.shape[0], args.heads = q.shape[1], args.dim = q.shape[2];
  args.kv_heads = k.shape[0], args.capacity = k.shape[1];
  args.position = checked_start(call.in(3), args.queries, args.capacity);
  args.scale = static_cast<float>(call.params.number[0]);
  args.softcap = static_cast<float>(call.params.number[1]);
  args.window = call.params.integer[0];
  args.half_cache = k.dtype == DType::f16;
  args.byte_cache = k.dtype == DType::u8;
  const int64_t block = query_block(args.queries, args.heads / args.kv_heads);
  const int64_t blocks = (args.queries + block - 1) / block;
  const size_t scratch = attention_scratch(args.heads / args.kv_heads, args.dim);
  if (call.has(4)) {
    float* behind =
        reinterpret_cast<float*>(work.scratch) + static_cast<size_t>(work.pool.size()) * scratch;
    int32_t* depths = reinterpret_cast<int32_t*>(behind);
    find_depths(call.in(4), depths);
    args.parents = call.in(4).i32();
    args.depths = depths;
  }
  work.pool.parallel_for(args.kv_heads * blocks, 1, [&](int64_t begin, int64_t end, int thread) {
    float* own = reinterpret_cast<float*>(work.scratch) + static_cast<size_t>(thread) * scratch;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item / args.kv_heads * block;
      work.kernels.attention(args, item % args.kv_heads, first,
                             std::min(first + block, args.queries), own);
    }
  });
}

const OpDef kOps[] = {
    {"positions", 2, 3, false, {}, check_positions, run_positions},
    {"rope_table", 2, 2, false, {"scale"}, check_rope_table, run_rope_table},
    {"rope", 2, 2, false, {}, check_rope, run_rope},
    {"cache_write", 3, 3, true, {}, check_cache_write, run_cache_write},
    {"cache_move", 3, 3, true, {}, check_cache_move, run_cache_move},
    {"attention", 4, 5, false, {"scale", "window", "softcap"}, check_attention, run_attention},
};

}  // namespace

std::span<const OpDef> attention_ops() { return kOps; }

}  // namespace satchel
