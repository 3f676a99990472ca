// rope_table, rope, cache_write, cache_move and attention.
#include <cmath>
#include <cstring>

#include "../errors.h"
#include "../cpu_op.h"
#include "../step_runs.h"

namespace satchel {

namespace {

// Queries that a thread takes at a time: of long blocks enough that turning the keys for them pays,
// and more of them where every thread still gets many.
constexpr int64_t kQueryBlock = 16, kLongQueryBlock = 32, kManyQueries = 512;
int64_t query_block(int64_t queries, int64_t heads_per_kv) {
  if (queries < 2 * kLongQueryBlock) return kQueryBlock;
  return heads_per_kv > 2 && queries < kManyQueries ? kLongQueryBlock : 2 * kLongQueryBlock;
}

// --- Which rows of a cache the tokens of a step have ---

void require_numbers(const NodeCall& call, const Tensor& t, int64_t count, const char* message) {
  require_array(call, t, DType::i32);
  require(t.rank == 1 && t.shape[0] == count, call, message);
}

void require_step(const NodeCall& call, size_t first, int64_t tokens) {
  require(tokens <= int64_t{1} << 30, call, "there are too many tokens");
  require_numbers(call, call.in(first), tokens, "there must be a sequence for each token");
  require_numbers(call, call.in(first + 1), tokens, "there must be a position for each token");
  if (call.has(first + 2)) {
    require_numbers(call, call.in(first + 2), tokens, "there must be a parent for each token");
  }
}

// --- rope_table(positions, inverse_frequencies) ---

void check_rope_table(NodeCall& call) {
  const Tensor &positions = call.in(0), &frequencies = call.in(1), &y = *call.output;
  require_array(call, positions, DType::i32);
  require_array(call, frequencies, DType::f32);
  require_array(call, y, DType::f32);
  require(positions.rank == 1 && frequencies.rank == 1 && y.rank == 2 &&
              y.shape[0] == positions.shape[0] && y.shape[1] == 2 * frequencies.shape[0],
          call, "the sizes do not fit");
  call.params.number[0] = number_attribute(call, "scale", 1.0);
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

void check_rope(NodeCall& call) {
  const Tensor &x = call.in(0), &table = call.in(1), &y = *call.output;
  for (const Tensor* t : {&x, &table, &y}) require_array(call, *t, DType::f32);
  require(x.rank == 3 && table.rank == 2 && same_shape(x, y), call,
          "need x [S, H, D] and a table [S, R]");
  require(table.shape[0] == x.shape[0] && table.shape[1] <= x.shape[2] && table.shape[1] % 2 == 0,
          call, "the table does not fit");
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

// --- cache_write(cache, x, sequence, position, parents?) ---

bool is_cache(const Tensor& t) {
  return t.rank == 3 && (t.dtype == DType::f32 || t.dtype == DType::f16 || t.dtype == DType::u8);
}

// Elements of a cache that holds vectors of `dim` numbers: those of 8 bits have scale and zero
// behind them.
int64_t cache_row(const Tensor& cache, int64_t dim) {
  return cache.dtype == DType::u8 ? dim + kCacheTail : dim;
}

// Where the rows of a sequence lie, of a cache in pages or of one that is a plain array.
class CacheRows {
 public:
  CacheRows(const Tensor& cache, const int32_t* pages)
      : data_(cache.data),
        pages_(pages),
        heads_(cache.shape[0]),
        capacity_(cache.shape[1]),
        bytes_(static_cast<size_t>(cache.shape[2]) * dtype_size(cache.dtype)) {}

  uint8_t* at(int64_t head, int64_t row) const {
    const int64_t place =
        pages_ ? (int64_t{pages_[row / kKeyBlock]} * heads_ + head) * kKeyBlock + row % kKeyBlock
               : head * capacity_ + row;
    return data_ + static_cast<size_t>(place) * bytes_;
  }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_;
  const int32_t* pages_;
  int64_t heads_, capacity_;
  size_t bytes_;
};

CacheRows writable_rows(const Tensor& cache, int32_t sequence, int64_t first, int64_t count,
                        Sequences& sequences) {
  require_rows(first, count, cache.shape[1]);
  if (!cache.paged) {
    require_only_sequence(sequence);
    return {cache, nullptr};
  }
  sequences.make_writable(sequence, first, count);
  return {cache, sequences.pages(sequence, first + count)};
}

void check_cache_write(NodeCall& call) {
  const Tensor &cache = call.in(0), &x = call.in(1);
  require(is_cache(cache) && !cache.weight, call, "the cache must be f32, f16 or u8 [H, C, D]");
  require_array(call, x, DType::f32);
  require(
      x.rank == 3 && x.shape[1] == cache.shape[0] && cache_row(cache, x.shape[2]) == cache.shape[2],
      call, "x must be [S, H, D]");
  require_step(call, 2, x.shape[0]);
}

void run_cache_write(const NodeCall& call, const Workspace& work) {
  const Tensor &cache = call.in(0), &x = call.in(1);
  const int64_t heads = x.shape[1], dim = x.shape[2];
  each_run(call.in(2), call.in(3), call.has(4), [&](const Run& run) {
    // Of several tokens at one position the last one stays.
    const int64_t count = run.level ? 1 : run.count;
    const CacheRows rows = writable_rows(cache, run.sequence, run.position, count, work.sequences);
    const int64_t first = run.first + run.count - count;
    const auto write = [&](int64_t begin, int64_t end, int) {
      for (int64_t item = begin * heads; item < end * heads; ++item) {
        uint8_t* to = rows.at(item % heads, run.position + item / heads);
        const float* from = x.f32() + (first * heads + item) * dim;
        if (cache.dtype == DType::u8) {
          work.kernels.quantize_cache(from, dim, to);
        } else if (cache.dtype == DType::f16) {
          work.kernels.float_to_half(from, dim, reinterpret_cast<uint16_t*>(to));
        } else {
          std::memcpy(to, from, rows.bytes());
        }
      }
    };
    work.pool.parallel_for(count, grain_for(count, work.pool.size(), 16), write);
  });
}

// --- cache_move(cache, rows, sequence, start) ---

void check_cache_move(NodeCall& call) {
  const Tensor& cache = call.in(0);
  require(is_cache(cache) && !cache.weight, call, "the cache must be f32, f16 or u8 [H, C, D]");
  require_array(call, call.in(1), DType::i32);
  require(call.in(1).rank == 1, call, "the rows must be i32[n]");
  require_numbers(call, call.in(2), 1, "there must be one sequence");
  require_numbers(call, call.in(3), 1, "there must be one position");
}

void run_cache_move(const NodeCall& call, const Workspace& work) {
  const Tensor &cache = call.in(0), &rows = call.in(1);
  const int64_t count = rows.shape[0], start = call.in(3).i32()[0], capacity = cache.shape[1];
  require_rising_rows(rows.i32(), count, start, capacity);
  const int64_t last = count > 0 ? rows.i32()[count - 1] + 1 : 0;
  if (cache.paged) work.sequences.pages(call.in(2).i32()[0], start + last);  // or it throws
  const CacheRows place = writable_rows(cache, call.in(2).i32()[0], start, last, work.sequences);
  for (int64_t head = 0; head < cache.shape[0]; ++head) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = rows.i32()[i];
      if (row != i) {
        std::memcpy(place.at(head, start + i), place.at(head, start + row), place.bytes());
      }
    }
  }
}

// --- attention(q, k, v, sequence, position, parents?) ---

// What the runs of a step are kept in, and a tree's parents and depths, behind the threads'
// scratch.
size_t runs_bytes(int64_t tokens) { return static_cast<size_t>(tokens) * sizeof(Run); }

void check_attention(NodeCall& call) {
  const Tensor &q = call.in(0), &k = call.in(1), &v = call.in(2);
  require_array(call, q, DType::f32);
  require_array(call, *call.output, DType::f32);
  require(is_cache(k) && k.dtype == v.dtype && same_shape(k, v) && !k.weight && !v.weight &&
              k.paged == v.paged,
          call, "k and v must be caches of one type");
  require(q.rank == 3 && same_shape(q, *call.output) && cache_row(k, q.shape[2]) == k.shape[2] &&
              q.shape[1] % k.shape[0] == 0,
          call, "q does not fit the caches");
  require_step(call, 3, q.shape[0]);
  call.params.number[0] = number_attribute(call, "scale");
  call.params.number[1] = number_attribute(call, "softcap", 0.0);
  call.params.integer[0] = int_attribute(call, "window", 0);
  require(call.params.integer[0] >= 0 && call.params.number[1] >= 0, call,
          "window and softcap must not be negative");
}

size_t scratch_of_attention(const NodeCall& call, int threads) {
  const Tensor &q = call.in(0), &k = call.in(1);
  const size_t scratch = static_cast<size_t>(threads) *
                         attention_scratch(q.shape[1] / k.shape[0], q.shape[2]) * sizeof(float);
  const size_t tree = call.has(5) ? 2 * static_cast<size_t>(q.shape[0]) * sizeof(int32_t) : 0;
  return scratch + runs_bytes(q.shape[0]) + tree;
}

// How many queries of a run a thread takes at a time.
int64_t block_of(const Run& run, int64_t heads_per_kv) {
  return query_block(run.count, heads_per_kv);
}

void run_attention(const NodeCall& call, const Workspace& work) {
  const Tensor &q = call.in(0), &k = call.in(1), &v = call.in(2);
  AttentionArgs step{};
  step.k = k.data, step.v = v.data;
  step.heads = q.shape[1], step.dim = q.shape[2], step.kv_heads = k.shape[0];
  step.scale = static_cast<float>(call.params.number[0]);
  step.softcap = static_cast<float>(call.params.number[1]);
  step.window = call.params.integer[0];
  step.half_cache = k.dtype == DType::f16;
  step.byte_cache = k.dtype == DType::u8;
  const int64_t group = step.heads / step.kv_heads, capacity = k.shape[1];
  const size_t scratch = attention_scratch(group, step.dim);
  uint8_t* behind = work.scratch + static_cast<size_t>(work.pool.size()) * scratch * sizeof(float);
  Run* runs = reinterpret_cast<Run*>(behind);
  int32_t* parents = reinterpret_cast<int32_t*>(behind + runs_bytes(q.shape[0]));
  int32_t* depths = parents + q.shape[0];
  size_t count = 0;
  int64_t items = 0;
  each_run(call.in(3), call.in(4), call.has(5), [&](Run run) {
    const int64_t rows = run.level ? 1 : run.count;
    require_rows(run.position, rows, capacity);
    if (k.paged) {
      work.sequences.pages(run.sequence, run.position + rows);  // or it throws
    } else {
      require_only_sequence(run.sequence);
    }
    if (call.has(5)) {
      find_depths(run, call.in(5).i32(), call.in(4).i32(), parents + run.first, depths + run.first);
    }
    const int64_t block = block_of(run, group);
    run.items = items += step.kv_heads * ((run.count + block - 1) / block);
    runs[count++] = run;
  });
  work.pool.parallel_for(items, 1, [&](int64_t begin, int64_t end, int thread) {
    float* own = reinterpret_cast<float*>(work.scratch) + static_cast<size_t>(thread) * scratch;
    const Run* run = runs;
    for (int64_t item = begin; item < end; ++item) {
      while (item >= run->items) ++run;
      const int64_t done = run == runs ? 0 : run[-1].items, block = block_of(*run, group);
      AttentionArgs args = step;
      args.q = q.f32() + run->first * step.heads * step.dim;
      args.out = call.output->f32() + run->first * step.heads * step.dim;
      args.queries = run->count, args.position = run->position, args.level = run->level;
      if (k.paged) {
        lay_in_pages(args, work.sequences.pages(run->sequence, 0));
      } else {
        lay_in_line(args, capacity);
      }
      if (call.has(5)) args.parents = parents + run->first, args.depths = depths + run->first;
      const int64_t first = (item - done) / step.kv_heads * block;
      work.kernels.attention(args, (item - done) % step.kv_heads, first,
                             std::min(first + block, run->count), own);
    }
  });
}

const OpDef kOps[] = {
    {{"rope_table", 2, 2, false, {"scale"}, check_rope_table}, {run_rope_table}},
    {{"rope", 2, 2, false, {}, check_rope}, {run_rope}},
    {{"cache_write", 4, 5, true, {}, check_cache_write, true}, {run_cache_write}},
    {{"cache_move", 4, 4, true, {}, check_cache_move, true}, {run_cache_move}},
    {{"attention", 5, 6, false, {"scale", "window", "softcap"}, check_attention, true},
     {run_attention, scratch_of_attention}},
};

}  // namespace

std::span<const OpDef> attention_ops() { return kOps; }

}  // namespace satchel
