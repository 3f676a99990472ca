// A layer of many experts, of which every token chooses some: only their weights are read.
#include <algorithm>
#include <cstring>
#include <optional>

#include "../errors.h"
#include "../quantized_layer.h"

namespace satchel {

namespace {

// --- expert_linear(x, weight, chosen) ---
//
// A *pair* is a token and one of the experts that it chose. Pairs are sorted by expert, so that
// each expert's rows are a matrix that its weight is multiplied with as any layer's is.

constexpr int64_t kBlockRows = 128;  // of pairs whose results wait at a time
constexpr int64_t kPieceTiles = 8;

int64_t experts_of(const NodeCall& call) { return call.params.integer[1]; }

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Where things lie in the scratch.
struct ExpertLayout {
  int64_t pairs, digits, cols, out, experts;
  int64_t stride = 0, groups = 0;  // of codes; digits 0: the rows are floats
  size_t scales = 0, sums = 0, group_inputs = 0, order = 0, starts = 0, used = 0;
  size_t threads = 0, thread_size = 0, total = 0;

  ExpertLayout(const NodeCall& call, int pool_size)
      : pairs(call.in(2).elements()),
        digits(digits_of(call)),
        cols(call.in(0).last()),
        out(call.output->last()),
        experts(experts_of(call)) {
    const WeightEntry& weight = *call.in(1).weight;
    const bool added = weight.group_offsets().has_value();
    if (digits) {
      stride = round_up(cols, 64) | 64;
      groups = cols / weight.group;
      reserve(pairs * digits * stride);
      scales = reserve(pairs * digits * 4);
      sums = reserve(pairs * digits * groups * 4);
      if (added) group_inputs = reserve(pairs * groups * 4);
    } else {
      reserve(pairs * cols * 4);
    }
    order = reserve(pairs * 4);
    starts = reserve((experts + 1) * 4);
    used = reserve(experts * 4);
    threads = total;
    const int64_t results = std::max<int64_t>(digits, 1) + (added ? 1 : 0);
    thread_size = static_cast<size_t>(kBlockRows * results * kPieceTiles * kTileRows * 4);
    total = threads + thread_size * static_cast<size_t>(pool_size);
  }

  QuantizedRows rows_in(uint8_t* scratch) const {
    return {pairs * digits,
            cols,
            stride,
            groups ? cols / groups : cols,
            reinterpret_cast<int8_t*>(scratch),
            reinterpret_cast<float*>(scratch + scales),
            reinterpret_cast<int32_t*>(scratch + sums),
            std::max<int64_t>(digits, 1)};
  }

 private:
  size_t reserve(int64_t bytes) {
    const size_t at = total;
    total += static_cast<size_t>(round_up(bytes, 64));
    return at;
  }
};

void check_expert_linear(NodeCall& call) {
  const Tensor &x = call.in(0), &w = call.in(1), &chosen = call.in(2), &y = *call.output;
  require_array(call, x, DType::f32);
  require_array(call, chosen, DType::i32);
  require_array(call, y, DType::f32);
  require(w.weight && w.weight->is_matrix() && !w.weight->is_integers(), call,
          "the weight must be a packed matrix");
  const int64_t experts = int_attribute(call, "experts");
  require(experts >= 1 && w.shape[0] % experts == 0 && w.shape[0] / experts % kTileRows == 0, call,
          "each expert must have a multiple of 16 rows");
  require(chosen.rank == 2 && y.rank == 3 && std::equal(chosen.shape, chosen.shape + 2, y.shape),
          call, "the output has a row for each choice");
  require((x.rank == 2 || x.rank == 3) && std::equal(x.shape, x.shape + x.rank - 1, chosen.shape),
          call, "x has a row for each token or for each choice");
  require(x.last() == w.shape[1] && y.last() == w.shape[0] / experts, call, "the sizes do not fit");
  const std::string activations = text_attribute(call, "activations", "f32");
  require(activations == "f32" || activations == "int8" || activations == "int16", call,
          "there are no such activations");
  call.params.integer[0] = activations == "int16" ? 2 : activations == "int8" ? 1 : 0;
  call.params.integer[1] = experts;
  require((digits_of(call) > 0) == w.weight->is_quantized(), call,
          "the activations do not fit the weight's encoding");
  // Of each number two codes, a sum and what is added to a group: 16 bytes hold them.
  const auto numbers = checked_product(static_cast<uint64_t>(chosen.elements()),
                                       static_cast<uint64_t>(x.last()) + 128);
  require(numbers && checked_product(*numbers, 16) && chosen.elements() <= INT32_MAX, call,
          "x is too large");
}

size_t expert_linear_scratch(const NodeCall& call, int threads) {
  return ExpertLayout(call, threads).total;
}

// The pairs in the order of their experts, where each expert's begin, and which experts have any.
struct Sorted {
  const int32_t *order, *starts, *used;
  int64_t used_count;
};

Sorted sort_pairs(const Tensor& chosen, const ExpertLayout& layout, uint8_t* scratch) {
  auto* order = reinterpret_cast<int32_t*>(scratch + layout.order);
  auto* starts = reinterpret_cast<int32_t*>(scratch + layout.starts);
  auto* used = reinterpret_cast<int32_t*>(scratch + layout.used);
  const int32_t* experts = chosen.i32();
  for (int64_t p = 0; p < layout.pairs; ++p) {
    if (experts[p] < 0 || experts[p] >= layout.experts) {
      throw ExecutionError("there is no expert " + std::to_string(experts[p]) + " among " +
                           std::to_string(layout.experts));
    }
  }
  std::fill_n(starts, layout.experts + 1, 0);
  for (int64_t p = 0; p < layout.pairs; ++p) ++starts[experts[p] + 1];
  for (int64_t e = 0; e < layout.experts; ++e) starts[e + 1] += starts[e];
  for (int64_t p = 0; p < layout.pairs; ++p) order[starts[experts[p]]++] = static_cast<int32_t>(p);
  // Filling moved every start to where the next expert's pairs begin.
  std::copy_backward(starts, starts + layout.experts, starts + layout.experts + 1);
  starts[0] = 0;
  int64_t used_count = 0;
  for (int64_t e = 0; e < layout.experts; ++e) {
    if (starts[e] < starts[e + 1]) used[used_count++] = static_cast<int32_t>(e);
  }
  return {order, starts, used, used_count};
}

// The rows of x in the order of the pairs, quantised if the weight is.
void gather_rows(const NodeCall& call, const ExpertLayout& layout, const Sorted& sorted,
                 const Workspace& work) {
  const float* x = call.in(0).f32();
  const int64_t choices = call.in(2).shape[1], shared = call.in(0).rank == 2 ? choices : 1;
  const QuantizedRows rows = layout.rows_in(work.scratch);
  const bool added = layout.group_inputs != 0;
  work.pool.parallel_for(
      layout.pairs, grain_for(layout.pairs, work.pool.size(), 4),
      [&](int64_t begin, int64_t end, int) {
        for (int64_t p = begin; p < end; ++p) {
          const float* from = x + sorted.order[p] / shared * layout.cols;
          if (!layout.digits) {
            std::copy_n(from, layout.cols,
                        reinterpret_cast<float*>(work.scratch) + p * layout.cols);
            continue;
          }
          const QuantizedRows part = part_of(rows, p * layout.digits, (p + 1) * layout.digits);
          const auto quantize =
              layout.digits == 2 ? work.kernels.quantize_rows16 : work.kernels.quantize_rows;
          quantize(from, layout.cols, part);
          if (added) {
            take_group_inputs(
                part, layout.digits, call.in(1).weight->matrix().encoding,
                reinterpret_cast<float*>(work.scratch + layout.group_inputs) + p * layout.groups);
          }
        }
      });
}

// An expert's tiles [begin, end) times its pairs [first, last), to their rows of y.
struct Piece {
  int64_t begin, end, first, last;
};

void multiply(const NodeCall& call, const ExpertLayout& layout, const Sorted& sorted,
              const Piece& piece, int64_t column, float* results, const Workspace& work) {
  const KernelTable& k = work.kernels;
  const WeightEntry& weight = *call.in(1).weight;
  const PackedMatrix part = part_of(weight.matrix(), piece.begin, piece.end);
  const int64_t count = piece.last - piece.first, tiles = piece.end - piece.begin,
                width = part.rows;
  const std::optional<PackedMatrix> offsets = weight.group_offsets();
  int64_t results_each = 1;
  float* sums = results + count * std::max<int64_t>(layout.digits, 1) * width;
  if (layout.digits) {
    const QuantizedRows rows = part_of(layout.rows_in(work.scratch), piece.first * layout.digits,
                                       piece.last * layout.digits);
    const QuantizedKernel kernel = quantized_kernel(k, part, layout.digits, count);
    kernel.run(rows, part, nullptr, 0, tiles, results, width);
    results_each = kernel.rows;
    if (offsets) {
      const PackedMatrix added = part_of(*offsets, piece.begin, piece.end);
      const auto add = offsets->encoding == MatrixEncoding::f16 ? k.linear_f16 : k.linear_f32;
      add(reinterpret_cast<const float*>(work.scratch + layout.group_inputs) +
              piece.first * layout.groups,
          layout.groups, count, added, nullptr, Activation::none, 0, tiles, sums, width);
    }
  } else {
    const auto kernel = part.encoding == MatrixEncoding::f32 ? k.linear_f32 : k.linear_f16;
    kernel(reinterpret_cast<const float*>(work.scratch) + piece.first * layout.cols, layout.cols,
           count, part, nullptr, Activation::none, 0, tiles, results, width);
  }
  const float* factors = weight.row_factors();
  if (factors) factors += piece.begin * kTileRows;
  for (int64_t i = 0; i < count; ++i) {
    float* out = call.output->f32() + sorted.order[piece.first + i] * layout.out + column;
    const float* high = results + i * results_each * width;
    const float* low = high + width;
    for (int64_t c = 0; c < width; ++c) out[c] = results_each == 2 ? high[c] + low[c] : high[c];
    for (int64_t c = 0; factors && c < width; ++c) out[c] *= factors[c];
    for (int64_t c = 0; offsets && c < width; ++c) out[c] += sums[i * width + c];
  }
}

void run_expert_linear(const NodeCall& call, const Workspace& work) {
  const ExpertLayout layout(call, work.pool.size());
  const Sorted sorted = sort_pairs(call.in(2), layout, work.scratch);
  gather_rows(call, layout, sorted, work);
  const int64_t tiles = layout.out / kTileRows, pieces = (tiles + kPieceTiles - 1) / kPieceTiles;
  work.pool.parallel_for(
      sorted.used_count * pieces, 1, [&](int64_t begin, int64_t end, int thread) {
        auto* results = reinterpret_cast<float*>(work.scratch + layout.threads +
                                                 static_cast<size_t>(thread) * layout.thread_size);
        for (int64_t i = begin; i < end; ++i) {
          const int64_t expert = sorted.used[i / pieces], first_tile = i % pieces * kPieceTiles;
          Piece piece{expert * tiles + first_tile,
                      expert * tiles + std::min(first_tile + kPieceTiles, tiles), 0, 0};
          for (int64_t row = sorted.starts[expert]; row < sorted.starts[expert + 1];
               row += kBlockRows) {
            piece.first = row;
            piece.last = std::min<int64_t>(row + kBlockRows, sorted.starts[expert + 1]);
            multiply(call, layout, sorted, piece, first_tile * kTileRows, results, work);
          }
        }
      });
}

const OpDef kOps[] = {
    {{"expert_linear", 3, 3, false, {"experts", "activations"}, check_expert_linear},
     {run_expert_linear, expert_linear_scratch}},
};

}  // namespace

std::span<const OpDef> expert_ops() { return kOps; }

}  // namespace satchel
