#include "linear_step.h"

#include <algorithm>

#include "many_blocks.h"
#include "multiples.h"

namespace satchel::vulkan {

namespace {

constexpr int64_t kChunk = 32;            // columns that a thread has at once
constexpr int64_t kChunksTogether = 64;   // of a workgroup of linear_bytes.glsl
constexpr int64_t kMostRounded = 16384;   // bytes of a row that a workgroup rounds itself
constexpr int64_t kMostTogether = 4;      // tokens of a workgroup of linear_few.comp
constexpr int64_t kMostFew = 8;           // tokens that are done without blocks
constexpr int64_t kMostOfFewBlocks = 64;  // tokens of gemm_few.comp
constexpr int64_t kManyGroups = 128;      // workgroups that keep a large device busy
constexpr int64_t kCores = 132;           // of a large device
constexpr uint32_t kTilesAtOnce = 2 * kCores;
constexpr int64_t kSplitColumns = 2048;  // the fewest of a workgroup that has not all of them
constexpr int64_t kMostColumnsOfMany = 16384;
constexpr uint32_t kSharedOfMany = 32 << 10;  // bytes of a workgroup of gemm_many.comp, at most

int64_t tokens_of(const NodeCall& linear) { return linear.in(0).product(0, linear.in(0).rank - 1); }

const WeightEntry& weight_of(const NodeCall& linear) { return *linear.in(1).weight; }

// The bytes of a matrix in the file, and of its bias.
template <typename Take>
void each_piece(const NodeCall& linear, Take take) {
  const WeightEntry& w = weight_of(linear);
  take(w.codes, w.codes_size);
  take(w.scales, w.scales_size);
  if (linear.has(2)) take(linear.in(2).weight->codes, linear.in(2).weight->codes_size);
}

uint64_t second_plane(const WeightEntry& w) {
  if (const float* factors = w.row_factors())
    return static_cast<uint64_t>(reinterpret_cast<const uint8_t*>(factors) - w.scales);
  if (const std::optional<PackedMatrix> offsets = w.group_offsets())
    return static_cast<uint64_t>(offsets->codes - w.scales);
  return 0;
}

class LinearStep : public Step {
 public:
  LinearStep(const LinearNodes& nodes, Place weights, const DeviceInfo& device)
      : nodes_(nodes),
        weights_(weights),
        has_matrices_(device.features.cooperative_bytes),
        has_room_for_many_(device.properties.limits.maxComputeSharedMemorySize >= kSharedOfMany) {
    for (const NodeCall* linear : nodes.linears) {
      const Multiples own =
          has_matrices_ ? multiples_of(weight_of(*linear)) : Multiples{false, false};
      has_multiples_ = has_multiples_ && own.are_small;
      has_near_steps_ = has_near_steps_ && own.have_near_steps;
    }
  }

  uint64_t scratch(Work&) const override { return scratch_bytes(); }

  void record(Work& work) override {
    if (is_for_few()) {
      record_gemm_few(work);
      return;
    }
    if (is_for_many()) {
      record_gemm_many(work);
      return;
    }
    if (uses_blocks()) {
      record_gemm(work);
      return;
    }
    View x = awaited(work.view(input())), aux = x;
    if (!rounds_itself())
      round_rows(work, x, aux);
    else if (nodes_.norm)
      aux = work.view(nodes_.norm->in(1));
    record_few(work, x, aux);
  }

 private:
  struct Matrix {
    uint32_t codes, scales, second, bias, y, rows;
  };

  static void record_node(const NodeCall& call, Work& work) {
    find_op(call.info->op->name)->record(call, work);
  }

  const NodeCall& first() const { return *nodes_.linears.front(); }
  int64_t tokens() const { return tokens_of(first()); }
  int64_t cols() const { return weight_of(first()).shape[1]; }
  // Bytes of a code; the largest code is what the CPU's is.
  uint32_t digits() const { return word(first().params.integer[0]); }
  uint32_t largest() const { return digits() == 2 ? kLargest16 : 127; }
  // Codes of 5 and 6 bits and K-quants are unpacked by linear_one.glsl and linear_few.comp alone.
  bool uses_blocks() const {
    return tokens() > kMostFew && !is_k(weight_of(first()).matrix().encoding);
  }
  // Otherwise blocks are gemm_dot.comp's: gemm_bytes.comp has no place for what is added to all
  // weights of a group.
  bool uses_matrices() const { return has_matrices_ && !weight_of(first()).group_offsets(); }
  // Whether gemm_few.comp can do it, which reads weights faster than blocks do.
  bool is_for_few() const {
    return uses_blocks() && uses_matrices() && has_multiples_ && digits() == 1 &&
           tokens() <= kMostOfFewBlocks;
  }
  // Whether gemm_many.comp can do it, which has larger blocks than gemm_bytes.comp.
  bool is_for_many() const {
    return uses_blocks() && uses_matrices() && has_near_steps_ && has_room_for_many_ &&
           digits() == 1 && tokens() > kMostOfFewBlocks && cols() <= kMostColumnsOfMany;
  }
  // Whether it computes the product of two layers, too.
  bool multiplies_many() const { return nodes_.product && !first().has(2); }
  ManyBlocks sizes_of_many() const {
    return many_blocks(tokens(), all_rows(), cols(), multiplies_many(), is_plain());
  }
  int64_t all_rows() const {
    int64_t rows = 0;
    for (const NodeCall* linear : nodes_.linears) rows += weight_of(*linear).shape[0];
    return rows;
  }
  uint32_t activation() const { return static_cast<uint32_t>(first().params.activation); }
  uint32_t group() const { return word(weight_of(first()).group); }
  uint32_t encoding() const { return static_cast<uint32_t>(weight_of(first()).kind) - 16; }
  bool rounds_itself() const { return tokens() == 1 && cols() * digits() <= kMostRounded; }
  const Tensor& input() const { return nodes_.norm ? nodes_.norm->in(0) : first().in(0); }
  float eps() const {
    return nodes_.norm ? static_cast<float>(nodes_.norm->params.number[0]) : 0.0f;
  }

  // Codes, and behind them scales.
  uint64_t codes_bytes() const {
    return round_up(static_cast<uint64_t>(tokens() * cols() * digits()), kOffsetStep);
  }
  uint64_t aux_bytes() const { return static_cast<uint64_t>(tokens()) * sizeof(float); }
  uint64_t parts_bytes() const {
    if (!uses_blocks() || splits() == 1) return 0;
    return static_cast<uint64_t>(splits() * tokens() * all_rows()) * sizeof(float);
  }
  // Codes of rounded rows and their scales, and then parts of results.
  uint64_t rounded_bytes() const {
    return rounds_itself() ? 0 : codes_bytes() + round_up(aux_bytes(), kOffsetStep);
  }
  uint64_t scratch_bytes() const { return rounded_bytes() + parts_bytes(); }

  void round_rows(Work& work, View& x, View& aux) const {
    const Place room = work.scratch(scratch_bytes());
    const View codes = work.recorder.view({room.buffer, room.offset, codes_bytes()});
    aux = work.recorder.view({room.buffer, room.offset + codes_bytes(), aux_bytes()});
    const View norm = nodes_.norm ? work.view(nodes_.norm->in(1)) : x;
    const struct {
      uint32_t cols, x_first, codes_first, scales_first, norm_first;
      float eps;
    } push{word(cols()), x.first, codes.first, aux.first, norm.first, eps()};
    const uint32_t own_words = word((cols() / 4 + 255) / 256);
    work.recorder.dispatch("quantize_packed",
                           {digits(), largest(), nodes_.norm != nullptr, own_words},
                           {x, written(codes), written(aux), norm}, push, {word(tokens())});
    x = codes;
  }

  // Results that lie apart are seen by way of what lies between them.
  View seen(const std::vector<const Tensor*>& results, Work& work) const {
    Place all = work.place(*results[0]);
    for (const Tensor* result : results) all = around(all, work.place(*result));
    return work.recorder.view(all);
  }

  // Of each layer, with what is fused with it.
  std::vector<const Tensor*> fused_results() const {
    std::vector<const Tensor*> results;
    for (const NodeCall* linear : nodes_.linears) {
      results.push_back(nodes_.sum       ? nodes_.sum->output
                        : nodes_.product ? nodes_.product->output
                                         : linear->output);
    }
    return results;
  }
  // Where a product of two layers is computed apart.
  std::vector<const Tensor*> own_results() const {
    std::vector<const Tensor*> results;
    for (const NodeCall* linear : nodes_.linears)
      results.push_back(nodes_.sum ? nodes_.sum->output : linear->output);
    return results;
  }
  // As shaders/products.glsl has them.
  uint32_t product() const {
    if (!nodes_.product) return 0;
    return nodes_.product->info->op->name == std::string("silu_mul") ? 1 : 2;
  }

  // By linear_one.glsl, which rounds a row itself, or linear_few.comp.
  void record_few(Work& work, const View& x, const View& aux) const {
    const std::vector<const Tensor*> results = fused_results();
    const View w = work.recorder.view(weights_), y = seen(results, work);
    const View residual = nodes_.sum ? awaited(work.view(*nodes_.residual)) : x;
    struct {
      uint32_t cols, tokens, x_first, aux_first, residual_first;
      float eps;
      uint32_t tiles_0, tiles_1;
      Matrix matrices[3];
      uint32_t tiles;
    } push{word(cols()), word(tokens()), x.first,    aux.first, residual.first,
           eps(),        UINT32_MAX,     UINT32_MAX, {},        0};
    push.tiles =
        fill_matrices(work, y, results, kTileRows, push.matrices, push.tiles_0, push.tiles_1) /
        (nodes_.product ? 2 : 1);
    const bool is_one = rounds_itself();
    const auto together = word(std::min<int64_t>(tokens(), kMostTogether));
    const Constants constants{encoding(),     activation(),
                              together,       is_one && nodes_.norm != nullptr,
                              first().has(2), nodes_.sum != nullptr,
                              product(),      is_one ? push.cols / 4 : 1,
                              digits(),       largest(),
                              group(),        is_one ? pieces_ahead(push.tiles) : 1};
    if (is_one) {
      work.recorder.dispatch("linear_one", constants, {w, x, aux, residual, written(y)}, push,
                             {std::min(push.tiles, kTilesAtOnce)});
    } else {
      work.recorder.dispatch("linear_few", constants, {w, x, aux, residual, written(y)}, push,
                             {push.tiles, (push.tokens + together - 1) / together});
    }
  }

  // Of how many of its pieces of a tile a thread of linear_one.glsl asks for the weights at once.
  // More take registers: of four, a core has room for one workgroup.
  uint32_t pieces_ahead(uint32_t tiles) const {
    constexpr int64_t together = kChunk * kChunksTogether;
    const int64_t pieces = (cols() + together - 1) / together * (nodes_.product ? 2 : 1);
    const WeightKind kind = weight_of(first()).kind;
    const bool is_wide = kind == WeightKind::matrix_q8 || kind == WeightKind::matrix_q8_offset;
    int64_t ahead = is_wide ? 1 : tiles > kCores ? 2 : 4;
    while (pieces % ahead != 0) ahead /= 2;
    return word(ahead);
  }

  // Tiles of a workgroup of gemm_few.comp, among how many subgroups each is shared out, and the
  // columns that are in shared memory at a time.
  struct FewBlocks {
    uint32_t tiles, parts, columns;
  };
  // The sizes were tried on an H200, of whose cores' shared memory two workgroups have room that
  // take up to 24 kB each. None takes more than 32.
  FewBlocks blocks_of_few(uint32_t room) const {
    const int64_t tiles = all_rows() / kTileRows;
    if (tiles > 4 * kManyGroups) return {4, 2, 8192 / room};
    if (nodes_.product) return {2, 4, 256};
    if (tiles > kCores * 3 / 2 || room > 32) return {1, 4, 256};
    return {1, 8, 512};
  }

  // What the shaders of blocks have in common: rounded tokens, where results go, push constants,
  // and how many blocks of rows there are.
  struct BlockCall {
    View w, x, aux, residual, y;
    struct {
      uint32_t cols, tokens, x_first, aux_first, residual_first, blocks_0, blocks_1;
      Matrix matrices[3];
    } push;
    uint32_t blocks;
  };

  BlockCall block_call(Work& work, const std::vector<const Tensor*>& results,
                       uint32_t height) const {
    View x = work.view(input()), aux = x;
    round_rows(work, x, aux);
    const View residual = nodes_.sum ? work.view(*nodes_.residual) : x;
    BlockCall call{work.recorder.view(weights_), x, aux, residual, seen(results, work), {}, 0};
    call.push = {word(cols()),   word(tokens()), x.first / 4, aux.first,
                 residual.first, UINT32_MAX,     UINT32_MAX,  {}};
    call.blocks = fill_matrices(work, call.y, results, height, call.push.matrices,
                                call.push.blocks_0, call.push.blocks_1);
    return call;
  }

  // Where columns are split, their parts of the results are added up behind it.
  void dispatch_blocks(Work& work, BlockCall call, const char* shader, const Constants& constants,
                       uint32_t blocks, uint32_t tokens_of_block, uint32_t splits) const {
    const View to = splits > 1 ? parts_view(work) : call.y;
    if (splits > 1) call.push.matrices[0].y = to.first;
    const uint32_t down = (call.push.tokens + tokens_of_block - 1) / tokens_of_block;
    work.recorder.dispatch(shader, constants,
                           {call.w, call.x, call.aux, call.residual, written(to)}, call.push,
                           {blocks, down * splits});
    if (splits > 1) add_parts(work, to, call.residual, call.y, splits);
  }

  void record_gemm_few(Work& work) const {
    const uint32_t matrices = nodes_.product ? 2 : 1;
    const uint32_t room = tokens() <= 16 ? 16 : tokens() <= 32 ? 32 : 64;
    const FewBlocks size = blocks_of_few(room);
    const BlockCall call = block_call(work, fused_results(), size.tiles / matrices * kTileRows);
    const Constants constants{
        encoding(),     activation(),          room,      size.tiles,
        first().has(2), nodes_.sum != nullptr, product(), size.tiles * size.parts * 32,
        size.parts,     size.columns,          group()};
    dispatch_blocks(work, call, "gemm_few", constants, call.blocks / matrices, room, 1);
  }

  void record_gemm_many(Work& work) const {
    const ManyBlocks size = sizes_of_many();
    const bool multiplies = multiplies_many();
    const uint32_t matrices = multiplies ? 2 : 1;
    const BlockCall call =
        block_call(work, multiplies ? fused_results() : own_results(), size.rows / matrices);
    const Constants constants{encoding(),
                              activation(),
                              size.tokens,
                              size.rows,
                              first().has(2),
                              nodes_.sum != nullptr && size.splits == 1,
                              multiplies ? product() : 0,
                              size.columns,
                              size.runs,
                              size.splits,
                              group(),
                              call.push.cols % size.columns == 0};
    dispatch_blocks(work, call, "gemm_many", constants, call.blocks / matrices, size.tokens,
                    size.splits);
    if (nodes_.product && !multiplies) record_node(*nodes_.product, work);
  }

  // By gemm_bytes.comp, or gemm_dot.comp where there are no matrices.
  void record_gemm(Work& work) const {
    const bool by_matrices = uses_matrices();
    const Blocks size = by_matrices ? blocks() : dot_blocks();
    const uint32_t split = word(splits());
    const BlockCall call = block_call(work, own_results(), size.rows);
    const Constants constants{
        encoding(),   activation(),   size.tokens,
        size.rows,    first().has(2), nodes_.sum != nullptr && split == 1,
        digits(),     size.threads,   size.parts,
        size.columns, group(),        by_matrices ? has_multiples_ && digits() == 1 : is_long(),
        split};
    dispatch_blocks(work, call, by_matrices ? "gemm_bytes" : "gemm_dot", constants, call.blocks,
                    size.tokens, split);
    if (nodes_.product) record_node(*nodes_.product, work);
  }

  View parts_view(Work& work) const {
    const Place room = work.scratch(scratch_bytes());
    return work.recorder.view({room.buffer, room.offset + rounded_bytes(), parts_bytes()});
  }

  // Tokens and rows of a workgroup of gemm_bytes.comp or gemm_dot.comp: large ones read less, small
  // ones are more.
  struct Blocks {
    uint32_t tokens, rows, threads, parts, columns;
  };

  void add_parts(Work& work, const View& parts, const View& residual, const View& y,
                 uint32_t splits) const {
    const struct {
      uint32_t count, splits, parts_first, residual_first, y_first;
    } push{word(tokens() * all_rows()), splits, parts.first, residual.first, y.first};
    work.recorder.dispatch("sum_parts", {nodes_.sum != nullptr}, {parts, residual, written(y)},
                           push, groups_for(push.count, 256));
  }

  bool is_plain() const {
    return nodes_.linears.size() == 1 && !nodes_.product && !first().has(2) &&
           first().params.activation == Activation::none;
  }
  // Among how many workgroups the columns of a single layer are split, where its blocks are few and
  // its rows long.
  int64_t splits() const {
    if (is_for_many()) return sizes_of_many().splits;
    if (!uses_matrices() || !is_plain() || is_for_few()) return 1;
    const int64_t most = std::clamp<int64_t>(cols() / kSplitColumns, 1, 4);
    // A core has three blocks of 64 tokens at once, of codes of 8 bits.
    if (tokens() > 64)
      return digits() == 2 ? 1 : std::clamp<int64_t>(3 * kCores / blocks_of(64), 1, most);
    return small_blocks() >= kManyGroups ? 1 : most;
  }
  int64_t small_blocks() const { return (all_rows() + 31) / 32; }
  // Blocks of so many tokens and 64 rows.
  int64_t blocks_of(int64_t side) const {
    return (tokens() + side - 1) / side * ((all_rows() + 63) / 64);
  }

  // The share of a device's cores that workgroups keep busy, where a core has so many at once.
  static double filled(int64_t groups, int64_t of_core) {
    const int64_t at_once = of_core * kCores;
    return static_cast<double>(groups) /
           static_cast<double>((groups + at_once - 1) / at_once * at_once);
  }

  // The sizes were tried on an H200.
  Blocks blocks() const {
    if (digits() == 2)
      return tokens() <= 32 ? Blocks{32, 32, 64, 2, 128} : Blocks{64, 64, 128, 1, 64};
    if (tokens() <= 32) {
      return small_blocks() * splits() < 3 * kManyGroups ? Blocks{32, 32, 256, 4, 128}
                                                         : Blocks{32, 32, 128, 2, 128};
    }
    if (tokens() > 64 && splits() > 1) return {64, 64, 128, 1, 128};
    if (tokens() > 64 && blocks_of(128) >= kManyGroups) {
      // Large blocks are faster by a sixth, unless they leave more of the last round's room empty.
      return filled(blocks_of(128), 2) * 7 / 6 >= filled(blocks_of(64), 3)
                 ? Blocks{128, 64, 128, 1, 128}
                 : Blocks{64, 64, 128, 1, 128};
    }
    if (tokens() > 64 && blocks_of(64) > kManyGroups) return {64, 64, 256, 1, 128};
    return {64, 32, 256, 2, 128};
  }

  // Threads have four tokens and four rows each, so that a word from shared memory is multiplied
  // four times, and two steps' words and sums are few enough for registers.
  Blocks dot_blocks() const {
    if (tokens() <= 16) return {16, 64, 64, 1, 64};
    const int64_t large = blocks_of(64);
    if (tokens() <= 32 || large < kManyGroups / 2) return {32, 64, 128, 1, 64};
    return {64, 64, 256, 1, 64};
  }
  // Whether linear_few.comp's threads have more than a chunk each: sums are then added up likewise.
  bool is_long() const { return cols() > kChunksTogether * kChunk; }

  // Returns how many tiles or blocks of `height` rows there are, and fills in where the second and
  // the third matrix begin.
  uint32_t fill_matrices(Work& work, const View& y, const std::vector<const Tensor*>& results,
                         uint32_t height, Matrix* matrices, uint32_t& second,
                         uint32_t& third) const {
    uint32_t blocks = 0;
    for (size_t i = 0; i < nodes_.linears.size(); ++i) {
      matrices[i] = matrix(*nodes_.linears[i], work, y, *results[i]);
      if (i == 1) second = blocks;
      if (i == 2) third = blocks;
      blocks += (matrices[i].rows + height - 1) / height;
    }
    return blocks;
  }

  Matrix matrix(const NodeCall& linear, Work& work, const View& y, const Tensor& result) const {
    const WeightEntry& own = weight_of(linear);
    const View w = work.recorder.view(weights_);
    const auto word_of = [&](const uint8_t* bytes, uint64_t size) {
      const uint64_t offset = work.bytes_of_file(bytes, size).offset - weights_.offset;
      return w.first + word(static_cast<int64_t>(offset / 4));
    };
    const uint32_t scales = word_of(own.scales, own.scales_size);
    const WeightEntry* bias = linear.has(2) ? linear.in(2).weight : nullptr;
    return {word_of(own.codes, own.codes_size),
            scales,
            scales + word(static_cast<int64_t>(second_plane(own) / 4)),
            bias ? word_of(bias->codes, bias->codes_size) : 0,
            word(static_cast<int64_t>((work.place(result).offset - y.offset) / 4)),
            word(own.shape[0])};
  }

  LinearNodes nodes_;
  Place weights_;  // all of them, with what may lie between
  bool has_matrices_, has_room_for_many_, has_multiples_ = true, has_near_steps_ = true;
};

}  // namespace

bool multiplies_bytes(const NodeCall& linear, const DeviceInfo& device) {
  const WeightEntry& w = weight_of(linear);
  return device.features.integer_dot && linear.params.integer[0] > 0 && w.is_quantized() &&
         !w.is_integers() && w.shape[1] % kChunk == 0 && w.group > 0 &&
         (w.group % kChunk == 0 || w.kind == WeightKind::matrix_q6_k) &&
         (!linear.has(2) || linear.in(2).weight);
}

bool can_join(const NodeCall& a, const NodeCall& b) {
  const WeightEntry &left = weight_of(a), &right = weight_of(b);
  return left.kind == right.kind && left.group == right.group && left.shape[1] == right.shape[1] &&
         a.params.activation == b.params.activation && a.has(2) == b.has(2) &&
         a.params.integer[0] == b.params.integer[0];
}

std::unique_ptr<Step> make_linear_step(const LinearNodes& nodes, const FusionContext& context,
                                       Weights& weights) {
  std::vector<Weights::Piece> pieces;
  for (const NodeCall* linear : nodes.linears) {
    each_piece(*linear,
               [&](const uint8_t* data, uint64_t size) { pieces.emplace_back(data, size); });
  }
  const std::optional<Place> all = weights.together(pieces);
  if (!all) return nullptr;
  return std::make_unique<LinearStep>(nodes, *all, context.device);
}

}  // namespace satchel::vulkan
