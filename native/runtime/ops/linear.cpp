// linear, embedding and matmul.
#include <algorithm>
#include <optional>
#include <vector>

#include "../errors.h"
#include "../float_layer.h"
#include "../op.h"

namespace satchel {

namespace {

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// --- linear(x, weight, bias?) ---

// Activations of 16 bits are two rows of codes each, high and low digits, whose results add up.
int64_t digits_of(const NodeCall& call) { return call.params.integer[0]; }  // 0: floats

// Where the scratch has the quantised activations and each thread's results before they are put together.
struct QuantizedLayout {
  int64_t rows, stride;         // of codes
  size_t scales, sums, total;   // offsets
  size_t group_inputs;          // the sums as floats, which a weight's group offsets are multiplied with
  int64_t chunk_tiles;          // tiles whose results wait at a time
  size_t results, thread_size;  // offset of the first thread's, bytes of each
};

constexpr int64_t kChunkBytes = 16384;  // results that stay in the first-level cache
constexpr int64_t kMostChunkTiles = 64;

QuantizedLayout quantized_layout(int64_t rows, int64_t digits, const WeightEntry& weight, int threads) {
  const int64_t cols = weight.shape[1], groups = cols / weight.group;
  const bool offsets = weight.group_offsets().has_value();
  QuantizedLayout layout{};
  layout.rows = rows * digits;
  // An odd number of cache lines, so that the same column of many rows is not in the same few places
  // of the caches.
  layout.stride = round_up(cols, 64) | 64;
  layout.scales = static_cast<size_t>(layout.rows * layout.stride);
  layout.sums = layout.scales + static_cast<size_t>(round_up(layout.rows * 4, 64));
  layout.total = layout.sums + static_cast<size_t>(layout.rows * groups * 4);
  if (offsets) {
    layout.group_inputs = static_cast<size_t>(round_up(static_cast<int64_t>(layout.total), 64));
    layout.total = layout.group_inputs + static_cast<size_t>(rows * groups * 4);
  }
  if (digits == 1 && !offsets && !weight.row_factors()) return layout;
  const int64_t tile_bytes = layout.rows * kTileRows * 4;
  layout.chunk_tiles = std::clamp<int64_t>(kChunkBytes / tile_bytes, 2, kMostChunkTiles);
  layout.results = static_cast<size_t>(round_up(static_cast<int64_t>(layout.total), 64));
  layout.thread_size = static_cast<size_t>(layout.chunk_tiles * tile_bytes);
  layout.total = layout.results + layout.thread_size * static_cast<size_t>(threads);
  return layout;
}

// Rows a page apart have the same places in a first-level cache, which has not enough for a block of
// them: they are copied to rows that are a cache line longer. The floats from one row to the next.
int64_t float_stride(int64_t rows, int64_t cols) { return cols % 1024 == 0 && rows >= 28 ? cols + 16 : cols; }

size_t check_linear(NodeCall& call, int threads) {
  const Tensor &x = call.in(0), &w = call.in(1), &y = *call.output;
  require_array(call, x, DType::f32);
  require_array(call, y, DType::f32);
  require(w.weight && w.weight->is_matrix() && !w.weight->is_integers(), call, "the weight must be a packed matrix");
  require(x.rank >= 1 && y.rank == x.rank && std::equal(x.shape, x.shape + x.rank - 1, y.shape), call,
          "x and the output differ");
  require(x.last() == w.shape[1] && y.last() == w.shape[0], call, "the sizes do not fit");
  if (call.has(2)) {
    require_array(call, call.in(2), DType::f32);
    require(call.in(2).rank == 1 && call.in(2).shape[0] == w.shape[0], call, "the bias does not fit");
  }
  const std::string activations = text_attribute(call, "activations", "f32");
  require(activations == "f32" || activations == "int8" || activations == "int16", call,
          "there are no such activations");
  call.params.integer[0] = activations == "int16" ? 2 : activations == "int8" ? 1 : 0;
  call.params.activation = activation_attribute(call);
  require((digits_of(call) > 0) == w.weight->is_quantized(), call, "the activations do not fit the weight's encoding");
  if (!digits_of(call)) {
    const int64_t rows = x.product(0, x.rank - 1), stride = float_stride(rows, x.last());
    if (stride == x.last()) return 0;
    const auto bytes = checked_product(static_cast<uint64_t>(rows), static_cast<uint64_t>(stride) * sizeof(float));
    require(bytes.has_value(), call, "x is too large");
    return static_cast<size_t>(*bytes);
  }
  return quantized_layout(x.product(0, x.rank - 1), digits_of(call), *w.weight, threads).total;
}

// The sums of each token's groups as floats, and the sums themselves as the kernels of `encoding` want them.
void take_group_inputs(const QuantizedRows& rows, int64_t digits, MatrixEncoding encoding, float* inputs) {
  const int64_t tokens = rows.rows / digits, groups = rows.cols / rows.group;
  for (int64_t t = 0; t < tokens; ++t) {
    int32_t* high = rows.sums + t * digits * groups;
    const int32_t* low = high + groups;
    const float scale = rows.scales[t * digits + digits - 1];
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t sum = digits == 2 ? int64_t{kDigitBase} * high[g] + low[g] : high[g];
      inputs[t * groups + g] = static_cast<float>(sum) * scale;
    }
    if (encoding == MatrixEncoding::q4_min) std::fill_n(high, digits * groups, 0);
  }
}

// `group_inputs` is null where the weight has no group offsets.
void quantize(const Tensor& x, int64_t digits, const QuantizedRows& out, MatrixEncoding encoding, float* group_inputs,
              const Workspace& work) {
  const int64_t tokens = out.rows / digits, sums_per_row = out.cols / out.group;
  const auto kernel = digits == 2 ? work.kernels.quantize_rows16 : work.kernels.quantize_rows;
  work.pool.parallel_for(tokens, grain_for(tokens, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
    QuantizedRows part = out;
    part.rows = (end - begin) * digits;
    part.codes += begin * digits * part.stride;
    part.scales += begin * digits;
    part.sums += begin * digits * sums_per_row;
    kernel(x.f32() + begin * out.cols, out.cols, part);
    if (group_inputs) take_group_inputs(part, digits, encoding, group_inputs + begin * sums_per_row);
  });
}

// Tiles [begin, end) as a matrix of their own.
PackedMatrix part_of(const PackedMatrix& w, int64_t begin, int64_t end) {
  PackedMatrix part = w;
  const int64_t tile_bytes = w.cols * kTileRows / (w.encoding == MatrixEncoding::q8 ? 1 : 2);
  part.rows = std::min(w.rows, end * kTileRows) - begin * kTileRows;
  part.codes += begin * tile_bytes;
  part.scales += begin * kTileRows * (w.cols / w.group);
  return part;
}

// What becomes of a chunk's results, of `count` columns: y = (sum over the digits) * factor + bias, or added to y,
// where the group offsets with the bias already are.
void put_together(const float* results, int64_t tokens, int64_t digits, int64_t count, const float* factors,
                  const float* bias, bool add, float* y, int64_t ldy) {
  for (int64_t t = 0; t < tokens; ++t) {
    const float* high = results + t * digits * count;
    const float* low = high + count;
    float* out = y + t * ldy;
    if (add) {
      for (int64_t i = 0; i < count; ++i) out[i] += digits == 2 ? high[i] + low[i] : high[i];
      continue;
    }
    for (int64_t i = 0; i < count; ++i) out[i] = digits == 2 ? high[i] + low[i] : high[i];
    if (factors) {
      for (int64_t i = 0; i < count; ++i) out[i] *= factors[i];
    }
    if (bias) {
      for (int64_t i = 0; i < count; ++i) out[i] += bias[i];
    }
  }
}

// Results of a quantised layer that need no more than its kernel.
bool is_simple(const NodeCall& call) {
  const WeightEntry& weight = *call.in(1).weight;
  return digits_of(call) == 1 && !weight.row_factors() && !weight.group_offsets();
}

// Layers with the same input, as of queries, keys and values, share its quantisation and one sharing
// out of work: between two layers all threads wait for the last, and read nothing.
bool joins(const NodeCall& call, const NodeCall& next) {
  return call.inputs[0] == next.inputs[0] && is_simple(call) && is_simple(next) &&
         call.in(1).weight->group == next.in(1).weight->group;
}

int64_t tiles_of(const NodeCall& call) { return (call.in(1).shape[0] + kTileRows - 1) / kTileRows; }

// Tiles [begin, end) of a layer.
void run_simple(const NodeCall& call, const QuantizedRows& rows, int64_t begin, int64_t end, const Workspace& work) {
  const PackedMatrix matrix = call.in(1).weight->matrix();
  const float* bias = call.has(2) ? call.in(2).f32() : nullptr;
  const KernelTable& k = work.kernels;
  float* y = call.output->f32();
  (matrix.encoding == MatrixEncoding::q8 ? k.linear_q8 : k.linear_q4)(rows, matrix, bias, begin, end, y, matrix.rows);
  if (call.params.activation == Activation::none) return;
  const int64_t first = begin * kTileRows, count = std::min(end * kTileRows, matrix.rows) - first;
  for (int64_t row = 0; row < rows.rows; ++row) {
    float* results = y + row * matrix.rows + first;
    k.activate(call.params.activation, results, count, results);
  }
}

// The tiles of `call` and of all that are joined to it, one behind the other.
void run_joined(const NodeCall& call, const QuantizedRows& rows, const Workspace& work) {
  int64_t tiles = 0;
  for (size_t i = 0; i <= call.joined; ++i) tiles += tiles_of((&call)[i]);
  work.pool.parallel_for(tiles, grain_for(tiles, work.pool.size(), 1), [&](int64_t begin, int64_t end, int) {
    int64_t first = 0;  // of the layer's tiles
    for (size_t i = 0; i <= call.joined; ++i) {
      const NodeCall& layer = (&call)[i];
      const int64_t last = first + tiles_of(layer), from = std::max(begin, first), to = std::min(end, last);
      if (from < to) run_simple(layer, rows, from - first, to - first, work);
      first = last;
    }
  });
}

void run_linear(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const WeightEntry& weight = *call.in(1).weight;
  const PackedMatrix matrix = weight.matrix();
  const float* bias = call.has(2) ? call.in(2).f32() : nullptr;
  const int64_t tokens = x.product(0, x.rank - 1), digits = digits_of(call);
  const KernelTable& k = work.kernels;
  if (!digits) {
    const int64_t cols = x.last(), stride = float_stride(tokens, cols);
    const float* from = x.f32();
    if (stride != cols) {
      auto* to = reinterpret_cast<float*>(work.scratch);
      work.pool.parallel_for(tokens, grain_for(tokens, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) std::copy_n(x.f32() + row * cols, cols, to + row * stride);
      });
      from = to;
    }
    float_layer(from, stride, tokens, matrix, bias, call.params.activation, y.f32(), work);
    return;
  }
  const QuantizedLayout layout = quantized_layout(tokens, digits, weight, work.pool.size());
  const QuantizedRows rows{layout.rows, matrix.cols, layout.stride, matrix.group,
                           reinterpret_cast<int8_t*>(work.scratch),
                           reinterpret_cast<float*>(work.scratch + layout.scales),
                           reinterpret_cast<int32_t*>(work.scratch + layout.sums)};
  const std::optional<PackedMatrix> offsets = weight.group_offsets();
  float* group_inputs = offsets ? reinterpret_cast<float*>(work.scratch + layout.group_inputs) : nullptr;
  quantize(x, digits, rows, matrix.encoding, group_inputs, work);
  if (is_simple(call)) return run_joined(call, rows, work);
  const auto kernel = matrix.encoding == MatrixEncoding::q8 ? k.linear_q8 : k.linear_q4;
  const auto activate = [&](int64_t begin, int64_t end) {
    if (call.params.activation == Activation::none) return;
    for (int64_t t = 0; t < tokens; ++t) {
      float* row = y.f32() + t * matrix.rows + begin;
      k.activate(call.params.activation, row, end - begin, row);
    }
  };
  const int64_t tiles = tiles_of(call), grain = grain_for(tiles, work.pool.size(), 1);
  const float* factors = weight.row_factors();
  work.pool.parallel_for(tiles, grain, [&](int64_t begin, int64_t end, int thread) {
    float* results =
        reinterpret_cast<float*>(work.scratch + layout.results + static_cast<size_t>(thread) * layout.thread_size);
    for (int64_t tile = begin; tile < end; tile += layout.chunk_tiles) {
      const int64_t chunk_end = std::min(tile + layout.chunk_tiles, end), first = tile * kTileRows;
      const PackedMatrix part = part_of(matrix, tile, chunk_end);
      kernel(rows, part, nullptr, 0, chunk_end - tile, results, part.rows);
      if (offsets) {
        const auto add_offsets = offsets->encoding == MatrixEncoding::f16 ? k.linear_f16 : k.linear_f32;
        add_offsets(group_inputs, offsets->cols, tokens, *offsets, bias, Activation::none, tile, chunk_end, y.f32(),
                    matrix.rows);
      }
      put_together(results, tokens, digits, part.rows, factors ? factors + first : nullptr,
                   bias ? bias + first : nullptr, offsets.has_value(), y.f32() + first, matrix.rows);
      activate(first, first + part.rows);
    }
  });
}

// --- embedding(ids, table) ---

size_t check_embedding(NodeCall& call, int) {
  const Tensor &ids = call.in(0), &table = call.in(1), &y = *call.output;
  require_array(call, ids, DType::i32);
  require_array(call, y, DType::f32);
  require(table.weight && table.weight->is_matrix() && !table.weight->is_integers(), call,
          "the table must be a packed matrix");
  require(y.rank == ids.rank + 1 && std::equal(ids.shape, ids.shape + ids.rank, y.shape) &&
              y.last() == table.shape[1],
          call, "the output does not fit");
  return 0;
}

void run_embedding(const NodeCall& call, const Workspace& work) {
  const Tensor &ids = call.in(0), &y = *call.output;
  const PackedMatrix table = call.in(1).weight->matrix();
  const float* factors = call.in(1).weight->row_factors();
  const std::optional<PackedMatrix> offsets = call.in(1).weight->group_offsets();
  const int64_t count = ids.elements();
  for (int64_t i = 0; i < count; ++i) {
    if (ids.i32()[i] < 0 || ids.i32()[i] >= table.rows) {
      throw ExecutionError("there is no token " + std::to_string(ids.i32()[i]) + "; the vocabulary has " +
                           std::to_string(table.rows));
    }
  }
  work.pool.parallel_for(count, grain_for(count, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
    std::vector<float> added(offsets ? static_cast<size_t>(offsets->cols) : 0);
    for (int64_t i = begin; i < end; ++i) {
      const int32_t row = ids.i32()[i];
      float* out = y.f32() + i * table.cols;
      work.kernels.unpack_row(table, row, out);
      if (offsets) {
        work.kernels.unpack_row(*offsets, row, added.data());
        for (int64_t c = 0; c < table.cols; ++c) out[c] += added[static_cast<size_t>(c / table.group)];
      }
      if (!factors) continue;
      for (int64_t c = 0; c < table.cols; ++c) out[c] *= factors[row];
    }
  });
}

// --- matmul(a, b) ---

size_t check_matmul(NodeCall& call, int) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  for (const Tensor* t : {&a, &b, &y}) {
    require_array(call, *t, DType::f32);
    require(t->rank >= 2, call, "the operands must have rank 2 or more");
  }
  require(a.last() == b.shape[b.rank - 2] && y.shape[y.rank - 2] == a.shape[a.rank - 2] && y.last() == b.last(),
          call, "the sizes do not fit");
  require(y.rank == std::max(a.rank, b.rank), call, "the output does not fit");
  for (const Tensor* t : {&a, &b}) {
    for (size_t i = 2; i < t->rank; ++i) {
      const int64_t have = t->shape[t->rank - 1 - i], want = y.shape[y.rank - 1 - i];
      require(have == want || have == 1, call, "the batch dimensions do not broadcast");
    }
  }
  for (size_t i = 2; i < y.rank; ++i) {
    const int64_t from_a = i < a.rank ? a.shape[a.rank - 1 - i] : 1;
    const int64_t from_b = i < b.rank ? b.shape[b.rank - 1 - i] : 1;
    require(y.shape[y.rank - 1 - i] == std::max(from_a, from_b), call, "the output does not fit");
  }
  return 0;
}

// Where the matrix of batch `number` (of the output) starts in a broadcast operand.
int64_t matrix_offset(const Tensor& t, const Tensor& y, int64_t number) {
  int64_t offset = 0, stride = t.shape[t.rank - 1] * t.shape[t.rank - 2];
  for (size_t i = 2; i < y.rank; ++i) {
    const int64_t size = y.shape[y.rank - 1 - i];
    if (i < t.rank) {
      const int64_t own = t.shape[t.rank - 1 - i];
      if (own != 1) offset += number % size * stride;
      stride *= own;
    }
    number /= size;
  }
  return offset;
}

void run_matmul(const NodeCall& call, const Workspace& work) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  const int64_t m = a.shape[a.rank - 2], k = a.last(), n = b.last();
  const int64_t rows = y.product(0, y.rank - 2) * m;
  work.pool.parallel_for(rows, grain_for(rows, work.pool.size(), 1), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const float* left = a.f32() + matrix_offset(a, y, row / m) + row % m * k;
      const float* right = b.f32() + matrix_offset(b, y, row / m);
      float* out = y.f32() + row * n;
      std::fill(out, out + n, 0.0f);
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t j = 0; j < n; ++j) out[j] += left[i] * right[i * n + j];
      }
    }
  });
}

const OpDef kOps[] = {
    {"linear", 2, 3, false, {"activations", "activation"}, check_linear, run_linear, joins},
    {"embedding", 2, 2, false, {}, check_embedding, run_embedding},
    {"matmul", 2, 2, false, {}, check_matmul, run_matmul},
};

}  // namespace

std::span<const OpDef> linear_ops() { return kOps; }

}  // namespace satchel
