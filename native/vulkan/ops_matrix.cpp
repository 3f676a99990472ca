// linear, expert_linear and embedding, over matrices as they lie in the file, and matmul.
#include <algorithm>

#include "../runtime/errors.h"
#include "conv_call.h"
#include "walk.h"

namespace satchel::vulkan {

namespace {

// A packed matrix in parts of so many tiles that a shader can see each at once.
struct Tiles {
  const WeightEntry& weight;
  int64_t rows, cols, group, tiles;
  uint64_t codes, scales, second;  // bytes of a tile
  uint64_t second_at;              // where the plane behind the scales begins
  int64_t together;                // tiles of a part

  Tiles(const WeightEntry& w, const DeviceInfo& device)
      : weight(w), rows(w.shape[0]), cols(w.shape[1]), group(std::max<int64_t>(w.group, 1)) {
    const PackedMatrix matrix = w.matrix();
    tiles = (rows + kTileRows - 1) / kTileRows;
    codes = w.codes_size / static_cast<uint64_t>(tiles);
    scales = w.is_quantized() ? 2 * static_cast<uint64_t>(scales_in_tile(matrix)) : 0;
    second = second_at = 0;
    const std::optional<PackedMatrix> offsets = w.group_offsets();
    if (const float* factors = w.row_factors()) {
      second = kTileRows * sizeof(float);
      second_at = static_cast<uint64_t>(reinterpret_cast<const uint8_t*>(factors) - w.scales);
    } else if (offsets) {
      second = static_cast<uint64_t>(offsets->cols * kTileRows) *
               (offsets->encoding == MatrixEncoding::f16 ? 2 : 4);
      second_at = static_cast<uint64_t>(offsets->codes - w.scales);
    }
    const uint64_t most = device.largest_binding() - kOffsetStep;
    together = std::min<int64_t>(static_cast<int64_t>(most / std::max({codes, scales, second})),
                                 kMostGroups);
  }

  // The encodings of shaders/matrix.glsl are numbered as those of the file.
  uint32_t encoding() const { return static_cast<uint32_t>(weight.kind) - 16; }

  struct Part {
    View codes, scales, second;
  };
  Part part(int64_t begin, int64_t end, Work& work) const {
    const auto first = static_cast<uint64_t>(begin), count = static_cast<uint64_t>(end - begin);
    Place at = work.bytes_of_file(weight.codes, weight.codes_size);
    const View words = work.recorder.view({at.buffer, at.offset + first * codes, count * codes});
    if (!scales) return {words, words, words};
    at = work.bytes_of_file(weight.scales, weight.scales_size);
    const View steps = work.recorder.view({at.buffer, at.offset + first * scales, count * scales});
    if (!second) return {words, steps, steps};
    return {
        words, steps,
        work.recorder.view({at.buffer, at.offset + second_at + first * second, count * second})};
  }
};

std::string refuses_matrix(const WeightEntry& weight, const DeviceInfo& device) {
  if (weight.is_integers()) return "the GPU has no products of static integers";
  if (Tiles(weight, device).together < 1) return "16 rows are more than a shader can see at once";
  return {};
}

// --- linear(x, weight, bias?) ---

int64_t tokens_of(const NodeCall& call) { return call.in(0).product(0, call.in(0).rank - 1); }

// 0: floats; 1: rounded to 8 bits for each token; 2: to 16 bits.
int64_t digits_of(const NodeCall& call) { return call.params.integer[0]; }

// The codes of x, as floats, and behind them the tokens' scales.
uint64_t codes_bytes(const NodeCall& call) {
  return round_up(static_cast<uint64_t>(call.in(0).elements()) * sizeof(float), kOffsetStep);
}

uint64_t linear_scratch(const NodeCall& call, Work&) {
  if (!digits_of(call)) return 0;
  return codes_bytes(call) + static_cast<uint64_t>(tokens_of(call)) * sizeof(float);
}

constexpr int64_t kTokensTogether = 4;  // of linear.comp
// From so many tokens on a weight in floats is multiplied in larger blocks; fewer have the same
// bits in any company.
constexpr int64_t kManyTokens = 64;

bool multiplies_blocks(const NodeCall& call, const DeviceInfo& device) {
  const WeightEntry& w = *call.in(1).weight;
  return tokens_of(call) >= kManyTokens && !w.is_quantized() && !digits_of(call) &&
         refuses_product(call, device).empty();
}

std::string refuses_linear(const NodeCall& call, const DeviceInfo& device) {
  if (tokens_of(call) > kMostGroups) return "the GPU takes at most 65535 tokens";
  return refuses_matrix(*call.in(1).weight, device);
}

// Where a layer reads its rows: x, or its codes.
struct Rows {
  View values, scales;
};

Rows rows_of(const NodeCall& call, Work& work) {
  const View from = work.view(call.in(0));
  if (!digits_of(call)) return {from, from};
  const Place codes = work.scratch(linear_scratch(call, work));
  const uint64_t apart = codes_bytes(call);
  const View rounded = work.recorder.view({codes.buffer, codes.offset, apart});
  const View scales = work.recorder.view({codes.buffer, codes.offset + apart, codes.size - apart});
  const struct {
    uint32_t cols, x_first, codes_first, scales_first;
  } push{word(call.in(0).last()), from.first, rounded.first, scales.first};
  const uint32_t largest = digits_of(call) == 2 ? kLargest16 : 127;
  work.recorder.dispatch("quantize", {largest}, {from, written(rounded), written(scales)}, push,
                         {word(tokens_of(call))});
  return {rounded, scales};
}

void record_linear(const NodeCall& call, Work& work) {
  if (multiplies_blocks(call, work.device)) {
    Product product(call, shape_of_rows(call));
    if (call.has(2)) product.bias = &call.in(2);
    product.record(work);
    return;
  }
  const Tiles tiles(*call.in(1).weight, work.device);
  const int64_t tokens = tokens_of(call);
  const auto [from, x_scales] = rows_of(call, work);
  const View y = work.view(*call.output), bias = call.has(2) ? work.view(call.in(2)) : from;
  const Constants constants{tiles.encoding(), static_cast<uint32_t>(call.params.activation),
                            call.has(2), digits_of(call) > 0};
  for (int64_t begin = 0; begin < tiles.tiles; begin += tiles.together) {
    const int64_t end = std::min(begin + tiles.together, tiles.tiles), first = begin * kTileRows;
    const Tiles::Part part = tiles.part(begin, end, work);
    const struct {
      uint32_t cols, group, codes_first, scales_first, second_first;
      uint32_t rows, begin, all_rows, tokens, x_first, bias_first, x_scales_first, y_first;
    } push{word(tiles.cols),
           word(tiles.group),
           part.codes.first,
           part.scales.first,
           part.second.first,
           word(std::min(end * kTileRows, tiles.rows) - first),
           word(first),
           word(tiles.rows),
           word(tokens),
           from.first,
           bias.first,
           x_scales.first,
           y.first};
    work.recorder.dispatch(
        "linear", constants,
        {from, part.codes, part.scales, part.second, bias, x_scales, written(y)}, push,
        {word(end - begin), word((tokens + kTokensTogether - 1) / kTokensTogether)});
  }
}

// --- expert_linear(x, weight, chosen) ---

int64_t experts_of(const NodeCall& call) { return call.params.integer[1]; }

std::string refuses_experts(const NodeCall& call, const DeviceInfo& device) {
  if (call.in(2).elements() > kMostGroups) return "the GPU takes at most 65535 choices";
  return refuses_matrix(*call.in(1).weight, device);
}

void prepare_experts(const NodeCall& call, Work&) {
  check_entries(call.in(2), experts_of(call), "expert");
}

void record_experts(const NodeCall& call, Work& work) {
  const Tensor& chosen = call.in(2);
  const Tiles tiles(*call.in(1).weight, work.device);
  const auto [from, x_scales] = rows_of(call, work);
  const View choices = work.view(chosen), y = work.view(*call.output);
  const int64_t tiles_each = tiles.tiles / experts_of(call);
  for (int64_t begin = 0; begin < tiles.tiles; begin += tiles.together) {
    const int64_t end = std::min(begin + tiles.together, tiles.tiles);
    const Tiles::Part part = tiles.part(begin, end, work);
    const struct {
      uint32_t cols, group, codes_first, scales_first, second_first;
      uint32_t begin, end, tiles_each, shared_by, x_first, chosen_first, x_scales_first, y_first;
    } push{word(tiles.cols),
           word(tiles.group),
           part.codes.first,
           part.scales.first,
           part.second.first,
           word(begin),
           word(end),
           word(tiles_each),
           word(chosen.elements() / tokens_of(call)),
           from.first,
           choices.first,
           x_scales.first,
           y.first};
    work.recorder.dispatch(
        "expert_linear", {tiles.encoding(), digits_of(call) > 0},
        {from, part.codes, part.scales, part.second, choices, x_scales, written(y)}, push,
        {word(tiles_each), word(chosen.elements())});
  }
}

// --- matmul(a, b) ---

// Over the dimensions before the last two; those of one element are taken again.
std::optional<Walk> walk_matrices(const NodeCall& call) {
  const Tensor& y = *call.output;
  const size_t rank = y.rank - 2;
  int64_t steps[2][kMaxRank] = {};
  for (size_t operand = 0; operand < 2; ++operand) {
    const Tensor& t = call.in(operand);
    for (size_t i = 0; i + 2 < t.rank; ++i) {
      if (t.shape[i] != 1) steps[operand][i + y.rank - t.rank] = t.product(i + 1, t.rank);
    }
  }
  return walk(y.shape, rank, steps[0], steps[1]);
}

std::string refuses_matmul(const NodeCall& call, const DeviceInfo&) {
  return walk_matrices(call) ? "" : kTooManyDimensions;
}

void record_matmul(const NodeCall& call, Work& work) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  const View left = work.view(a), right = work.view(b), to = work.view(y);
  const struct {
    Walk over;
    uint32_t count, rows, inner, cols, a_first, b_first, y_first;
  } push{*walk_matrices(call),
         word(y.elements()),
         word(y.shape[y.rank - 2]),
         word(a.last()),
         word(y.last()),
         left.first,
         right.first,
         to.first};
  work.recorder.dispatch("matmul", {}, {left, right, written(to)}, push,
                         groups_for(push.count, 256));
}

// --- embedding(ids, table) ---

std::string refuses_embedding(const NodeCall& call, const DeviceInfo& device) {
  if (!is_input(call.in(0))) return "the GPU takes tokens only from the method's inputs";
  if (call.in(0).elements() > kMostGroups) return "the GPU takes at most 65535 tokens";
  return refuses_matrix(*call.in(1).weight, device);
}

void prepare_embedding(const NodeCall& call, Work&) {
  const Tensor& ids = call.in(0);
  const int64_t rows = call.in(1).shape[0];
  for (int64_t i = 0; i < ids.elements(); ++i) {
    if (ids.i32()[i] < 0 || ids.i32()[i] >= rows) {
      throw ExecutionError("there is no token " + std::to_string(ids.i32()[i]) +
                           "; the vocabulary has " + std::to_string(rows));
    }
  }
}

void record_embedding(const NodeCall& call, Work& work) {
  const Tiles tiles(*call.in(1).weight, work.device);
  const View ids = work.view(call.in(0)), y = work.view(*call.output);
  for (int64_t begin = 0; begin < tiles.tiles; begin += tiles.together) {
    const int64_t end = std::min(begin + tiles.together, tiles.tiles), first = begin * kTileRows;
    const Tiles::Part part = tiles.part(begin, end, work);
    const struct {
      uint32_t cols, group, codes_first, scales_first, second_first;
      uint32_t rows, begin, ids_first, y_first;
    } push{
        word(tiles.cols),  word(tiles.group), part.codes.first,
        part.scales.first, part.second.first, word(std::min(end * kTileRows, tiles.rows) - first),
        word(first),       ids.first,         y.first};
    work.recorder.dispatch("embedding", {tiles.encoding()},
                           {ids, part.codes, part.scales, part.second, written(y)}, push,
                           {word(call.in(0).elements())});
  }
}

const VulkanOp kOps[] = {
    {"linear", refuses_linear, record_linear, nullptr, linear_scratch},
    {.name = "expert_linear",
     .refuses = refuses_experts,
     .record = record_experts,
     .prepare = prepare_experts,
     .scratch = linear_scratch,
     .entries = experts_of},
    {"matmul", refuses_matmul, record_matmul},
    {"embedding", refuses_embedding, record_embedding, prepare_embedding},
};

}  // namespace

std::span<const VulkanOp> matrix_ops() { return kOps; }

}  // namespace satchel::vulkan
