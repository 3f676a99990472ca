// linear, embedding and matmul.
#include <algorithm>
#include <optional>

#include "../errors.h"
#include "../float_layer.h"
#include "../cpu_op.h"
#include "../quantized_layer.h"

namespace satchel {

namespace {

// --- linear(x, weight, bias?) ---

void check_linear(NodeCall& call) {
  const Tensor &x = call.in(0), &w = call.in(1), &y = *call.output;
  require_array(call, x, DType::f32);
  require_array(call, y, DType::f32);
  require(w.weight && w.weight->is_matrix() && !w.weight->is_integers(), call,
          "the weight must be a packed matrix");
  require(x.rank >= 1 && y.rank == x.rank && std::equal(x.shape, x.shape + x.rank - 1, y.shape),
          call, "x and the output differ");
  require(x.last() == w.shape[1] && y.last() == w.shape[0], call, "the sizes do not fit");
  if (call.has(2)) {
    require_array(call, call.in(2), DType::f32);
    require(call.in(2).rank == 1 && call.in(2).shape[0] == w.shape[0], call,
            "the bias does not fit");
  }
  const std::string activations = text_attribute(call, "activations", "f32");
  require(activations == "f32" || activations == "int8" || activations == "int16", call,
          "there are no such activations");
  call.params.integer[0] = activations == "int16" ? 2 : activations == "int8" ? 1 : 0;
  call.params.activation = activation_attribute(call);
  require((digits_of(call) > 0) == w.weight->is_quantized(), call,
          "the activations do not fit the weight's encoding");
}

size_t linear_scratch(const NodeCall& call, int threads) {
  return digits_of(call) ? quantized_layout(call, threads).total : float_scratch(call);
}

void run_linear(const NodeCall& call, const Workspace& work) {
  if (!digits_of(call)) return run_floats(call, work);
  return is_simple(call) ? run_joined(call, work) : run_quantized(call, work);
}

bool joins_linear(std::span<const NodeCall> calls, const NodeCall& next) {
  return digits_of(calls.front()) ? joins_layers(calls, next) : joins_floats(calls, next);
}

// --- embedding(ids, table) ---

// The bytes of a row's group offsets, which each thread unpacks for itself.
size_t offsets_apart(const Tensor& table) {
  const std::optional<PackedMatrix> offsets = table.weight->group_offsets();
  return offsets ? scratch_apart(static_cast<size_t>(offsets->cols) * sizeof(float), 1) : 0;
}

void check_embedding(NodeCall& call) {
  const Tensor &ids = call.in(0), &table = call.in(1), &y = *call.output;
  require_array(call, ids, DType::i32);
  require_array(call, y, DType::f32);
  require(table.weight && table.weight->is_matrix() && !table.weight->is_integers(), call,
          "the table must be a packed matrix");
  require(y.rank == ids.rank + 1 && std::equal(ids.shape, ids.shape + ids.rank, y.shape) &&
              y.last() == table.shape[1],
          call, "the output does not fit");
}

size_t embedding_scratch(const NodeCall& call, int threads) {
  return offsets_apart(call.in(1)) * static_cast<size_t>(threads);
}

void run_embedding(const NodeCall& call, const Workspace& work) {
  const Tensor &ids = call.in(0), &y = *call.output;
  const PackedMatrix table = call.in(1).weight->matrix();
  const float* factors = call.in(1).weight->row_factors();
  const std::optional<PackedMatrix> offsets = call.in(1).weight->group_offsets();
  const size_t apart = offsets_apart(call.in(1));
  const int64_t count = ids.elements();
  for (int64_t i = 0; i < count; ++i) {
    if (ids.i32()[i] < 0 || ids.i32()[i] >= table.rows) {
      throw ExecutionError("there is no token " + std::to_string(ids.i32()[i]) +
                           "; the vocabulary has " + std::to_string(table.rows));
    }
  }
  work.pool.parallel_for(
      count, grain_for(count, work.pool.size(), 4), [&](int64_t begin, int64_t end, int thread) {
        float* added = reinterpret_cast<float*>(work.scratch + static_cast<size_t>(thread) * apart);
        for (int64_t i = begin; i < end; ++i) {
          const int32_t row = ids.i32()[i];
          float* out = y.f32() + i * table.cols;
          work.kernels.unpack_row(table, row, out);
          if (offsets) {
            work.kernels.unpack_row(*offsets, row, added);
            for (int64_t c = 0; c < table.cols; ++c) out[c] += added[c / table.group];
          }
          if (!factors) continue;
          for (int64_t c = 0; c < table.cols; ++c) out[c] *= factors[row];
        }
      });
}

// --- matmul(a, b) ---

void check_matmul(NodeCall& call) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  for (const Tensor* t : {&a, &b, &y}) {
    require_array(call, *t, DType::f32);
    require(t->rank >= 2, call, "the operands must have rank 2 or more");
  }
  require(a.last() == b.shape[b.rank - 2] && y.shape[y.rank - 2] == a.shape[a.rank - 2] &&
              y.last() == b.last(),
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
  work.pool.parallel_for(
      rows, grain_for(rows, work.pool.size(), 1), [&](int64_t begin, int64_t end, int) {
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
    {{"linear", 2, 3, false, {"activations", "activation"}, check_linear},
     {run_linear, linear_scratch, joins_linear}},
    {{"embedding", 2, 2, false, {}, check_embedding}, {run_embedding, embedding_scratch}},
    {{.name = "matmul",
      .min_inputs = 2,
      .max_inputs = 2,
      .writes_state = false,
      .attributes = {},
      .check = check_matmul,
      .takes_empty = true},
     {run_matmul}},
};

}  // namespace

std::span<const OpDef> linear_ops() { return kOps; }

}  // namespace satchel
