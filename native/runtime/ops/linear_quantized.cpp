// Quantised linear layers: where things are, and the layers whose results need more than a kernel.
#include <algorithm>
#include <optional>

#include "../quantized_layer.h"

namespace satchel {

namespace {

constexpr int64_t kChunkBytes = 131072;  // results that stay in the second-level cache
constexpr int64_t kFewestChunkTiles = 4, kMostChunkTiles = 64;
constexpr int64_t kTilesTogether = 12;  // what kernels take at a time divides it
constexpr int64_t kJoinedRows = 256;
constexpr int64_t kStreams = 4;  // tiles that kernels take at a time for one token

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// `group_inputs` is null where the weight has no group offsets.
void quantize(const Tensor& x, int64_t digits, const QuantizedRows& out, MatrixEncoding encoding,
              float* group_inputs, const Workspace& work) {
  const int64_t tokens = out.rows / digits, sums_per_row = out.cols / out.group;
  const auto kernel = digits == 2 ? work.kernels.quantize_rows16 : work.kernels.quantize_rows;
  work.pool.parallel_for(
      tokens, grain_for(tokens, work.pool.size(), 4), [&](int64_t begin, int64_t end, int) {
        const QuantizedRows part = part_of(out, begin * digits, end * digits);
        kernel(x.f32() + begin * out.cols, out.cols, part);
        if (group_inputs)
          take_group_inputs(part, digits, encoding, group_inputs + begin * sums_per_row);
      });
}

// What becomes of a chunk's results, of `count` columns: y = (sum over the digits) * factor + bias,
// or added to y, where the group offsets with the bias already are.
void put_together(const float* results, int64_t tokens, int64_t digits, int64_t count,
                  const float* factors, const float* bias, bool add, float* y, int64_t ldy) {
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

}  // namespace

void take_group_inputs(const QuantizedRows& rows, int64_t digits, MatrixEncoding encoding,
                       float* inputs) {
  const int64_t tokens = rows.rows / digits, groups = rows.cols / rows.group;
  for (int64_t t = 0; t < tokens; ++t) {
    int32_t* high = rows.sums + t * digits * groups;
    const int32_t* low = high + groups;
    const float scale = rows.scales[t * digits + digits - 1];
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t sum = digits == 2 ? int64_t{kDigitBase} * high[g] + low[g] : high[g];
      inputs[t * groups + g] = static_cast<float>(sum) * scale;
    }
    if (encoding == MatrixEncoding::q4_min || encoding == MatrixEncoding::q5_min)
      std::fill_n(high, digits * groups, 0);
  }
}

bool is_simple(const NodeCall& call) {
  const WeightEntry& weight = *call.in(1).weight;
  return digits_of(call) == 1 && !weight.row_factors() && !weight.group_offsets();
}

QuantizedLayout quantized_layout(const NodeCall& call, int pool_size) {
  const WeightEntry& weight = *call.in(1).weight;
  const Tensor& x = call.in(0);
  const int64_t tokens = x.product(0, x.rank - 1), groups = x.last() / weight.group;
  QuantizedLayout layout{};
  layout.digits = digits_of(call), layout.rows = tokens * layout.digits;
  layout.cols = x.last(), layout.group = weight.group;
  // An odd number of cache lines, so that the same column of many rows is not in the same few
  // places of the caches.
  layout.stride = round_up(layout.cols, 64) | 64;
  layout.scales = static_cast<size_t>(layout.rows * layout.stride);
  layout.sums = layout.scales + static_cast<size_t>(round_up(layout.rows * 4, 64));
  layout.total = layout.sums + static_cast<size_t>(layout.rows * groups * 4);
  if (weight.group_offsets()) {
    layout.group_inputs = static_cast<size_t>(round_up(static_cast<int64_t>(layout.total), 64));
    layout.total = layout.group_inputs + static_cast<size_t>(tokens * groups * 4);
  }
  layout.threads = static_cast<size_t>(round_up(static_cast<int64_t>(layout.total), 64));
  if (is_simple(call)) {
    layout.chunk_rows = std::clamp<int64_t>(tokens, 1, kJoinedRows);
    layout.token = static_cast<size_t>(kMostJoinedBytes);
    layout.thread_size = layout.token + static_cast<size_t>(round_up(layout.cols * 4, 64));
  } else {
    layout.chunk_rows = layout.rows;
    const int64_t tile_bytes = layout.rows * kTileRows * 4;
    const int64_t tiles =
        std::clamp<int64_t>(kChunkBytes / tile_bytes, kFewestChunkTiles, kMostChunkTiles);
    layout.chunk_tiles = tiles > kTilesTogether ? tiles / kTilesTogether * kTilesTogether : tiles;
    layout.thread_size = static_cast<size_t>(layout.chunk_tiles * tile_bytes);
  }
  layout.total = layout.threads + layout.thread_size * static_cast<size_t>(pool_size);
  return layout;
}

QuantizedRows part_of(const QuantizedRows& rows, int64_t begin, int64_t end) {
  QuantizedRows part = rows;
  part.rows = end - begin;
  part.codes += begin * rows.stride;
  part.scales += begin;
  part.sums += begin * (rows.cols / rows.group);
  return part;
}

PackedMatrix part_of(const PackedMatrix& w, int64_t begin, int64_t end) {
  PackedMatrix part = w;
  part.rows = std::min(w.rows, end * kTileRows) - begin * kTileRows;
  part.codes += begin * w.cols * column_bytes(w.encoding);
  if (w.scales) part.scales += begin * scales_in_tile(w);
  return part;
}

void run_quantized(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const WeightEntry& weight = *call.in(1).weight;
  const PackedMatrix matrix = weight.matrix();
  const float* bias = call.has(2) ? call.in(2).f32() : nullptr;
  const int64_t tokens = x.product(0, x.rank - 1), digits = digits_of(call);
  const KernelTable& k = work.kernels;
  const QuantizedLayout layout = quantized_layout(call, work.pool.size());
  const QuantizedRows rows = layout.rows_in(work.scratch);
  const std::optional<PackedMatrix> offsets = weight.group_offsets();
  float* group_inputs =
      offsets ? reinterpret_cast<float*>(work.scratch + layout.group_inputs) : nullptr;
  quantize(x, digits, rows, matrix.encoding, group_inputs, work);
  const QuantizedKernel kernel = quantized_kernel(k, matrix, digits, tokens);
  const auto activate = [&](int64_t begin, int64_t end) {
    if (call.params.activation == Activation::none) return;
    for (int64_t t = 0; t < tokens; ++t) {
      float* row = y.f32() + t * matrix.rows + begin;
      k.activate(call.params.activation, row, end - begin, row);
    }
  };
  const int64_t tiles = (matrix.rows + kTileRows - 1) / kTileRows,
                equal = grain_for(tiles, work.pool.size(), 1);
  const int64_t grain = tokens == 1 ? round_up(equal, kStreams) : equal;
  const float* factors = weight.row_factors();
  work.pool.parallel_for(tiles, grain, [&](int64_t begin, int64_t end, int thread) {
    float* results = reinterpret_cast<float*>(layout.of_thread(work.scratch, thread));
    for (int64_t tile = begin; tile < end; tile += layout.chunk_tiles) {
      const int64_t chunk_end = std::min(tile + layout.chunk_tiles, end), first = tile * kTileRows;
      const PackedMatrix part = part_of(matrix, tile, chunk_end);
      kernel.run(rows, part, nullptr, 0, chunk_end - tile, results, part.rows);
      if (offsets) {
        const auto add_offsets =
            offsets->encoding == MatrixEncoding::f16 ? k.linear_f16 : k.linear_f32;
        add_offsets(group_inputs, offsets->cols, tokens, *offsets, bias, Activation::none, tile,
                    chunk_end, y.f32(), matrix.rows);
      }
      put_together(results, tokens, kernel.rows, part.rows, factors ? factors + first : nullptr,
                   bias ? bias + first : nullptr, offsets.has_value(), y.f32() + first,
                   matrix.rows);
      activate(first, first + part.rows);
    }
  });
}

}  // namespace satchel
