// linear, embedding and matmul.
#include <algorithm>

#include "../errors.h"
#include "../op.h"

namespace satchel {

namespace {

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// --- linear(x, weight, bias?) ---

struct QuantizedLayout {
  int64_t stride;
  size_t scales, sums, total;  // offsets within the scratch, after the codes
};

QuantizedLayout quantized_layout(int64_t rows, int64_t cols, int64_t group) {
  QuantizedLayout layout{};
  layout.stride = round_up(cols, 64);
  layout.scales = static_cast<size_t>(rows * layout.stride);
  layout.sums = layout.scales + static_cast<size_t>(round_up(rows * 4, 64));
  layout.total = layout.sums + static_cast<size_t>(rows * (cols / group) * 4);
  return layout;
}

size_t check_linear(NodeCall& call, int) {
  const Tensor &x = call.in(0), &w = call.in(1), &y = *call.output;
  require_array(call, x, DType::f32);
  require_array(call, y, DType::f32);
  require(w.weight && w.weight->is_matrix(), call, "the weight must be a packed matrix");
  require(x.rank >= 1 && y.rank == x.rank && std::equal(x.shape, x.shape + x.rank - 1, y.shape), call,
          "x and the output differ");
  require(x.last() == w.shape[1] && y.last() == w.shape[0], call, "the sizes do not fit");
  if (call.has(2)) {
    require_array(call, call.in(2), DType::f32);
    require(call.in(2).rank == 1 && call.in(2).shape[0] == w.shape[0], call, "the bias does not fit");
  }
  const std::string activations = text_attribute(call, "activations", "f32");
  require(activations == "f32" || activations == "int8", call, "there are no such activations");
  const bool int8 = activations == "int8";
  require(int8 == w.weight->is_quantized(), call, "the activations do not fit the weight's encoding");
  call.params.integer[0] = int8;
  if (!int8) return 0;
  return quantized_layout(x.product(0, x.rank - 1), x.last(), w.weight->group).total;
}

void run_linear(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const PackedMatrix matrix = call.in(1).weight->matrix();
  const float* bias = call.has(2) ? call.in(2).f32() : nullptr;
  const int64_t rows = x.product(0, x.rank - 1);
  const int64_t tiles = round_up(matrix.rows, kTileRows) / kTileRows;
  const int64_t grain = grain_for(tiles, work.pool.size(), 1);
  const KernelTable& k = work.kernels;
  if (!call.params.integer[0]) {
    const auto kernel = matrix.encoding == MatrixEncoding::f32 ? k.linear_f32 : k.linear_f16;
    work.pool.parallel_for(tiles, grain, [&](int64_t begin, int64_t end, int) {
      kernel(x.f32(), matrix.cols, rows, matrix, bias, begin, end, y.f32(), matrix.rows);
    });
    return;
  }
  const QuantizedLayout layout = quantized_layout(rows, matrix.cols, matrix.group);
  const QuantizedRows quantized{
      rows, matrix.cols, layout.stride, matrix.group, reinterpret_cast<int8_t*>(work.scratch),
      reinterpret_cast<float*>(work.scratch + layout.scales),
      reinterpret_cast<int32_t*>(work.scratch + layout.sums)};
  const int64_t sums_per_row = matrix.cols / matrix.group;
  work.pool.parallel_for(rows, grain_for(rows, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
    QuantizedRows part = quantized;
    part.rows = end - begin;
    part.codes += begin * part.stride;
    part.scales += begin;
    part.sums += begin * sums_per_row;
    k.quantize_rows(x.f32() + begin * matrix.cols, matrix.cols, part);
  });
  const auto kernel = matrix.encoding == MatrixEncoding::q4 ? k.linear_q4 : k.linear_q8;
  work.pool.parallel_for(tiles, grain, [&](int64_t begin, int64_t end, int) {
    kernel(quantized, matrix, bias, begin, end, y.f32(), matrix.rows);
  });
}

// --- embedding(ids, table) ---

size_t check_embedding(NodeCall& call, int) {
  const Tensor &ids = call.in(0), &table = call.in(1), &y = *call.output;
  require_array(call, ids, DType::i32);
  require_array(call, y, DType::f32);
  require(table.weight && table.weight->is_matrix(), call, "the table must be a packed matrix");
  require(y.rank == ids.rank + 1 && std::equal(ids.shape, ids.shape + ids.rank, y.shape) &&
              y.last() == table.shape[1],
          call, "the output does not fit");
  return 0;
}

void run_embedding(const NodeCall& call, const Workspace& work) {
  const Tensor &ids = call.in(0), &y = *call.output;
  const PackedMatrix table = call.in(1).weight->matrix();
  const int64_t count = ids.elements();
  for (int64_t i = 0; i < count; ++i) {
    if (ids.i32()[i] < 0 || ids.i32()[i] >= table.rows) {
      throw ExecutionError("there is no token " + std::to_string(ids.i32()[i]) + "; the vocabulary has " +
                           std::to_string(table.rows));
    }
  }
  work.pool.parallel_for(count, grain_for(count, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) work.kernels.unpack_row(table, ids.i32()[i], y.f32() + i * table.cols);
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
    {"linear", 2, 3, false, {"activations"}, check_linear, run_linear},
    {"embedding", 2, 2, false, {}, check_embedding, run_embedding},
    {"matmul", 2, 2, false, {}, check_matmul, run_matmul},
};

}  // namespace

std::span<const OpDef> linear_ops() { return kOps; }

}  // namespace satchel
