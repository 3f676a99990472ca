// Quantised linear layers together with their neighbours. Between two ops all threads wait for the
// last, and what one has written the next reads from another core's cache: both are saved by doing
// several at once.
#include <algorithm>
#include <string_view>

#include "../quantized_layer.h"

namespace satchel {

namespace {

constexpr int64_t kStreams = 4;     // tiles that kernels take at a time for one row
constexpr int64_t kChunkTiles = 4;  // the least whose results wait for the op behind the layers
// Blocks of fewer rows go in pieces of so many tiles, which most layers divide into equal shares.
constexpr int64_t kShortBlock = 64, kShortBlockTiles = 8;

std::string_view name_of(const NodeCall& call) { return call.info->op->name; }
bool is_norm(const NodeCall& call) { return name_of(call) == "rms_norm"; }
bool is_layer(const NodeCall& call) { return name_of(call) == "linear"; }
bool is_gate(const NodeCall& call) {
  return name_of(call) == "silu_mul" || name_of(call) == "gelu_tanh_mul";
}

// Whether a layer's result is nothing but an input of the one call that follows.
bool passes_on(const NodeCall& layer) {
  return layer.output->uses == 1 && layer.params.activation == Activation::none;
}

int64_t tiles_of(const NodeCall& call) { return (call.in(1).shape[0] + kTileRows - 1) / kTileRows; }

// The calls by what they are.
struct Joined {
  const NodeCall* norm = nullptr;
  std::span<const NodeCall> layers;
  const NodeCall* last = nullptr;  // a gate, or an addition

  explicit Joined(const NodeCall& first) : layers(&first, first.joined + 1) {
    if (is_norm(first)) norm = &first, layers = layers.subspan(1);
    if (!is_layer(layers.back())) last = &layers.back(), layers = layers.first(layers.size() - 1);
  }
};

// The input's codes, for all tokens.
void quantize(const Joined& joined, const QuantizedLayout& layout, const QuantizedRows& rows,
              const Workspace& work) {
  const int64_t cols = rows.cols;
  const auto grain = grain_for(rows.rows, work.pool.size(), 4);
  if (!joined.norm) {
    const float* x = joined.layers[0].in(0).f32();
    return work.pool.parallel_for(rows.rows, grain, [&](int64_t begin, int64_t end, int) {
      work.kernels.quantize_rows(x + begin * cols, cols, part_of(rows, begin, end));
    });
  }
  const Tensor &x = joined.norm->in(0), &y = *joined.norm->output;
  const bool used_elsewhere = y.uses > joined.layers.size();
  work.pool.parallel_for(rows.rows, grain, [&](int64_t begin, int64_t end, int thread) {
    auto* token = reinterpret_cast<float*>(layout.of_thread(work.scratch, thread) + layout.token);
    for (int64_t row = begin; row < end; ++row) {
      float* normed = used_elsewhere ? y.f32() + row * cols : token;
      work.kernels.rms_norm(x.f32() + row * cols, joined.norm->in(1).f32(),
                            static_cast<float>(joined.norm->params.number[0]), 1, cols, normed);
      work.kernels.quantize_rows(normed, cols, part_of(rows, row, row + 1));
    }
  });
}

// Tiles [begin, end) of a layer, as a matrix of their own: to y.
void multiply(const NodeCall& layer, const QuantizedRows& rows, int64_t begin, int64_t end,
              float* y, int64_t ldy, const Workspace& work) {
  const PackedMatrix part = part_of(layer.in(1).weight->matrix(), begin, end);
  const float* bias = layer.has(2) ? layer.in(2).f32() + begin * kTileRows : nullptr;
  quantized_kernel(work.kernels, part, 1, rows.rows).run(rows, part, bias, 0, end - begin, y, ldy);
  if (layer.params.activation == Activation::none) return;
  for (int64_t row = 0; row < rows.rows; ++row) {
    work.kernels.activate(layer.params.activation, y + row * ldy, part.rows, y + row * ldy);
  }
}

// A part of the work: these rows and these tiles, of all layers one behind the other.
struct Piece {
  int64_t row_begin, row_end, tile_begin, tile_end;
};

void run_layers(const Joined& joined, const QuantizedRows& rows, const Piece& piece,
                const Workspace& work) {
  const QuantizedRows part = part_of(rows, piece.row_begin, piece.row_end);
  int64_t first = 0;  // of the layer's tiles
  for (const NodeCall& layer : joined.layers) {
    const int64_t last = first + tiles_of(layer), width = layer.in(1).shape[0];
    const int64_t from = std::max(piece.tile_begin, first) - first,
                  to = std::min(piece.tile_end, last) - first;
    float* y = layer.output->f32() + piece.row_begin * width;
    if (from < to) multiply(layer, part, from, to, y + from * kTileRows, width, work);
    first = last;
  }
}

// The results of some tiles stay in the cache until the last op has taken them.
void run_layers_and_last(const Joined& joined, const QuantizedLayout& layout,
                         const QuantizedRows& rows, const Piece& piece, float* results,
                         const Workspace& work) {
  const KernelTable& k = work.kernels;
  const int64_t width = joined.layers[0].in(1).shape[0];
  const bool gated = is_gate(*joined.last);
  const auto combine = !gated                                ? k.add
                       : name_of(*joined.last) == "silu_mul" ? k.silu_mul
                                                             : k.gelu_tanh_mul;
  const Tensor& added = joined.last->in(joined.last->inputs[0] == joined.layers[0].output ? 1 : 0);
  const QuantizedRows part = part_of(rows, piece.row_begin, piece.row_end);
  const int64_t layers = static_cast<int64_t>(joined.layers.size());
  const int64_t fit = k.joined_bytes / (layers * layout.chunk_rows * kTileRows * 4);
  const int64_t chunk_tiles = std::max(kChunkTiles, fit / kChunkTiles * kChunkTiles);
  float* others = results + layout.chunk_rows * chunk_tiles * kTileRows;
  for (int64_t tile = piece.tile_begin; tile < piece.tile_end; tile += chunk_tiles) {
    const int64_t end = std::min(tile + chunk_tiles, piece.tile_end), first = tile * kTileRows;
    const int64_t count = std::min(end * kTileRows, width) - first;
    multiply(joined.layers[0], part, tile, end, results, count, work);
    if (gated) multiply(joined.layers[1], part, tile, end, others, count, work);
    for (int64_t row = 0; row < part.rows; ++row) {
      const int64_t at = (piece.row_begin + row) * width + first;
      combine(results + row * count, gated ? others + row * count : added.f32() + at, count,
              joined.last->output->f32() + at);
    }
  }
}

}  // namespace

bool joins_layers(std::span<const NodeCall> calls, const NodeCall& next) {
  if (is_norm(calls.front())) {
    if (calls.size() > 1) return joins_layers(calls.subspan(1), next);
    return is_layer(next) && next.inputs[0] == calls[0].output && digits_of(next) &&
           is_simple(next);
  }
  const NodeCall &first = calls.front(), &previous = calls.back();
  if (!is_layer(previous) || !digits_of(first) || !is_simple(first)) return false;
  if (is_layer(next)) {
    return first.inputs[0] == next.inputs[0] && digits_of(next) && is_simple(next) &&
           first.in(1).weight->group == next.in(1).weight->group;
  }
  if (is_gate(next)) {
    return calls.size() == 2 && next.inputs[0] == first.output &&
           next.inputs[1] == previous.output && passes_on(first) && passes_on(previous);
  }
  if (name_of(next) != "add" || calls.size() != 1 || !passes_on(first)) return false;
  const bool takes = next.inputs[0] == first.output || next.inputs[1] == first.output;
  return takes && same_shape(next.in(0), next.in(1)) && same_shape(next.in(0), *next.output);
}

void run_joined(const NodeCall& call, const Workspace& work) {
  const Joined joined(call);
  const int threads = work.pool.size();
  const QuantizedLayout layout = quantized_layout(joined.layers[0], threads);
  const QuantizedRows rows = layout.rows_in(work.scratch);
  quantize(joined, layout, rows, work);
  int64_t all_tiles = 0;
  for (const NodeCall& layer : joined.layers) all_tiles += tiles_of(layer);
  const int64_t tiles =
      joined.last ? tiles_of(joined.layers[0]) : all_tiles;  // a gate's layers go side by side
  // Where there are enough rows, each thread has rows of its own, here as in other ops; then it
  // finds them in its cache.
  int64_t row_pieces = std::clamp<int64_t>(rows.rows / work.kernels.rows_apart, 1, threads);
  if (joined.last)
    row_pieces = std::max(row_pieces, (rows.rows + layout.chunk_rows - 1) / layout.chunk_rows);
  const int64_t shares = (threads + row_pieces - 1) / row_pieces;
  // One row is so little work that a few long pieces are best. Of blocks they are as small as
  // kernels like them: cores are seldom equally fast, and in the end one waits for another's last
  // piece.
  const int64_t equal = grain_for(all_tiles, static_cast<int>(shares), 1);
  const int64_t grain = rows.rows == 1            ? (equal + kStreams - 1) / kStreams * kStreams
                        : rows.rows < kShortBlock ? kShortBlockTiles
                                                  : work.kernels.tiles_together;
  const int64_t tile_pieces = (tiles + grain - 1) / grain;
  work.pool.parallel_for(row_pieces * tile_pieces, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end;) {
      const int64_t row_piece = i / tile_pieces,
                    stop = std::min(end, (row_piece + 1) * tile_pieces);
      const Piece piece{row_piece * rows.rows / row_pieces,
                        (row_piece + 1) * rows.rows / row_pieces, i % tile_pieces * grain,
                        std::min(((stop - 1) % tile_pieces + 1) * grain, tiles)};
      i = stop;
      if (joined.last) {
        auto* results = reinterpret_cast<float*>(layout.of_thread(work.scratch, thread));
        run_layers_and_last(joined, layout, rows, piece, results, work);
      } else {
        run_layers(joined, rows, piece, work);
      }
    }
  });
}

}  // namespace satchel
