// Convolutions with a kernel of 3 x 3 pixels in floats, by Winograd's F(4 x 4, 3 x 3): four times
// fewer products. The weights are transformed in each call, some tiles at a time that stay in the
// cache: what is transformed is four times as large, and reading it from memory would take longer
// than making it.
#pragma once

#include <utility>

#include "conv_panel.h"

namespace satchel {

// How such a layer is shared out. What one core writes and another reads is expensive to write
// again, so that each piece transforms what it needs by itself: all weights for its share of the
// image, or, where there are more weights than pixels, the whole image for its share of the
// outputs.
struct Winograd {
  int64_t across, down, tiles;  // of 4 x 4 pixels
  int64_t weight_tiles, pieces;
  bool by_outputs;
  int64_t blocks, block_tiles;  // of a piece: tiles of a block are done together
  int64_t slab_channels;        // of the weight, that are transformed and multiplied at a time
  int64_t slab_weights;         // floats of kSlabTiles tiles of so many channels
  bool keeps_slabs;             // all slabs are kept for the next block
  size_t weights, pointers, offsets, inputs, sums, piece_bytes, outside;

  Winograd(const ConvShape& s, int threads)
      : across((s.out_w + kWinogradPixels - 1) / kWinogradPixels),
        down((s.out_h + kWinogradPixels - 1) / kWinogradPixels),
        tiles(s.pixels / (s.out_h * s.out_w) * across * down),
        weight_tiles((s.outputs + kTileRows - 1) / kTileRows),
        pieces(threads),
        by_outputs(tiles < kFewestTiles * threads) {
    const int64_t piece_tiles = by_outputs ? tiles : (tiles + pieces - 1) / pieces;
    const int64_t piece_weight_tiles =
        by_outputs ? (weight_tiles + pieces - 1) / pieces : weight_tiles;
    const int64_t outputs = kSlabTiles * kTileRows;
    const int64_t fitting =
        std::clamp<int64_t>(kBlockBytes / (kWinogradPlaces * 4 * (s.channels + outputs)), 28, 112);
    blocks = (piece_tiles + fitting - 1) / fitting;
    block_tiles = (piece_tiles + blocks - 1) / blocks;
    const int64_t parts = (s.channels + kSlabChannels - 1) / kSlabChannels;
    slab_channels = (s.channels + parts - 1) / parts;
    slab_weights = kWinogradPlaces * winograd_apart(outputs * slab_channels);
    const int64_t slabs = (piece_weight_tiles + kSlabTiles - 1) / kSlabTiles * parts;
    keeps_slabs = blocks > 1 && slabs * slab_weights * 4 <= kKeptBytes;
    const auto bytes = [](int64_t numbers, size_t size) {
      return static_cast<size_t>(round_up(numbers * static_cast<int64_t>(size), 64));
    };
    weights = bytes(slab_weights * (keeps_slabs ? slabs : 1), sizeof(float));
    pointers = bytes(block_tiles * kWinogradPlaces, sizeof(float*));
    offsets = bytes(block_tiles * kWinogradPixels * kWinogradPixels, sizeof(int64_t));
    inputs = bytes(kWinogradPlaces * winograd_apart(block_tiles * s.channels), sizeof(float));
    sums = bytes(kWinogradPlaces * winograd_apart(block_tiles * outputs), sizeof(float));
    piece_bytes = scratch_apart(weights + pointers + offsets + inputs + sums, threads);
    outside = bytes(s.channels, sizeof(float));
  }

  size_t scratch() const { return outside + piece_bytes * static_cast<size_t>(pieces); }

  // Whether a layer gains: enough pixels for the transform of the weights, and channels for that of
  // the image.
  static bool suits(const ConvShape& s, MatrixEncoding encoding) {
    const Window& w = s.window;
    return encoding == MatrixEncoding::f32 && !s.transposed && s.groups == 1 && w.kernel_h == 3 &&
           w.kernel_w == 3 && w.stride_h == 1 && w.stride_w == 1 && w.dilation_h == 1 &&
           w.dilation_w == 1 && s.pixels >= kFewestPixels &&
           std::min(s.channels, s.outputs) >= kFewestChannels &&
           std::max(s.channels, s.outputs) <= kMostChannels;
  }

  static constexpr int64_t kSlabTiles =
      2;  // of the weight, that a block is multiplied with at a time

 private:
  static constexpr int64_t kSlabChannels = 128;
  static constexpr int64_t kBlockBytes = 1 << 19, kKeptBytes = 1 << 22;
  static constexpr int64_t kFewestPixels = 49, kFewestTiles = 16, kFewestChannels = 32,
                           kMostChannels = 1024;
};

// Where the tiles [begin, begin + count) look, and where their pixels lie in y or -1.
inline void place_tiles(const ConvShape& s, const Winograd& plan, const float* x,
                        const float* zeros, int64_t begin, int64_t count, const float** pixels,
                        int64_t* at) {
  constexpr int64_t kSide = kWinogradPixels, kSeen = kSide + 2;
  for (int64_t tile = begin; tile < begin + count; ++tile) {
    const int64_t image = tile / (plan.across * plan.down);
    const int64_t oy = tile / plan.across % plan.down * kSide, ox = tile % plan.across * kSide;
    for (int64_t place = 0; place < kWinogradPlaces; ++place) {
      const int64_t iy = oy - s.window.top + place / kSeen, ix = ox - s.window.left + place % kSeen;
      const bool inside = iy >= 0 && iy < s.height && ix >= 0 && ix < s.width;
      *pixels++ = inside ? x + ((image * s.height + iy) * s.width + ix) * s.channels : zeros;
    }
    for (int64_t pixel = 0; pixel < kSide * kSide; ++pixel) {
      const int64_t py = oy + pixel / kSide, px = ox + pixel % kSide;
      const bool inside = py < s.out_h && px < s.out_w;
      *at++ = inside ? ((image * s.out_h + py) * s.out_w + px) * s.outputs : -1;
    }
  }
}

// Some tiles and channels of the weight, which are transformed and multiplied together.
struct WeightSlab {
  int64_t tile, tile_end, channel, channel_end;

  int64_t depth() const { return channel_end - channel; }
  // Which of its lines the product of a place before it asks for: half the channels of a pixel of a
  // tile.
  Lines lines_for(int64_t place, const PackedMatrix& w) const {
    static_assert(Winograd::kSlabTiles * 9 * 2 == kWinogradPlaces);
    const int64_t of = tile + place / 18, pixel = place / 2 % 9, half = place % 2;
    if (of >= tile_end) return {};
    const int64_t first = half * depth() / 2, last = (half + 1) * depth() / 2;
    const int64_t line = of * w.cols + pixel * (w.cols / 9) + channel + first;
    return {w.codes + line * kTileRows * static_cast<int64_t>(sizeof(float)), last - first};
  }
};

// y = the convolution of x, with all threads.
inline void run_winograd(const ConvShape& s, const float* x, const PackedMatrix& w,
                         const float* bias, const FloatFinish& finish, float* y,
                         const Workspace& work) {
  const Winograd plan(s, work.pool.size());
  const KernelTable& k = work.kernels;
  float* zeros = reinterpret_cast<float*>(work.scratch);
  std::fill_n(zeros, s.channels, 0.0f);
  const auto run_piece = [&](int64_t piece) {
    const int64_t all = plan.by_outputs ? plan.weight_tiles : plan.tiles;
    const int64_t from = piece * all / plan.pieces, to = (piece + 1) * all / plan.pieces;
    if (from == to) return;
    const int64_t first = plan.by_outputs ? 0 : from, last = plan.by_outputs ? plan.tiles : to;
    const int64_t weight_tile = plan.by_outputs ? from : 0,
                  weight_end = plan.by_outputs ? to : plan.weight_tiles;
    uint8_t* own = work.scratch + plan.outside + static_cast<size_t>(piece) * plan.piece_bytes;
    const auto take = [&own](size_t bytes) { return std::exchange(own, own + bytes); };
    auto* weights = reinterpret_cast<float*>(take(plan.weights));
    auto** pixels = reinterpret_cast<const float**>(take(plan.pointers));
    auto* at = reinterpret_cast<int64_t*>(take(plan.offsets));
    auto* inputs = reinterpret_cast<float*>(take(plan.inputs));
    auto* sums = reinterpret_cast<float*>(take(plan.sums));
    const auto slab_at = [&](int64_t tile, int64_t channel) {
      return WeightSlab{tile, std::min(tile + Winograd::kSlabTiles, weight_end), channel,
                        std::min(channel + plan.slab_channels, s.channels)};
    };
    for (int64_t block = 0; block < plan.blocks; ++block) {
      const int64_t begin = first + block * (last - first) / plan.blocks;
      const int64_t count = first + (block + 1) * (last - first) / plan.blocks - begin;
      place_tiles(s, plan, x, zeros, begin, count, pixels, at);
      k.winograd_input(pixels, count, s.channels, inputs);
      float* slab = weights;
      for (int64_t tile = weight_tile; tile < weight_end; tile += Winograd::kSlabTiles) {
        const int64_t tile_end = std::min(tile + Winograd::kSlabTiles, weight_end),
                      output = tile * kTileRows;
        const int64_t outputs = std::min(tile_end * kTileRows, s.outputs) - output;
        for (int64_t channel = 0; channel < s.channels; channel += plan.slab_channels) {
          const WeightSlab now = slab_at(tile, channel);
          const WeightSlab next =
              now.channel_end < s.channels ? slab_at(tile, now.channel_end) : slab_at(tile_end, 0);
          if (block == 0 || !plan.keeps_slabs)
            k.winograd_weights(w, tile, tile_end, channel, now.channel_end, slab);
          const int64_t place_weights = winograd_apart((tile_end - tile) * kTileRows * now.depth());
          for (int64_t place = 0; place < kWinogradPlaces; ++place) {
            const PackedMatrix matrix{
                MatrixEncoding::f32,
                outputs,
                now.depth(),
                0,
                reinterpret_cast<const uint8_t*>(slab + place * place_weights),
                nullptr};
            float* to = sums + place * winograd_apart(count * outputs);
            // What the channels before have given is added as a residual.
            const FloatFinish sum(Activation::none, channel > 0 ? to : nullptr,
                                  next.lines_for(place, w));
            k.linear_f32(inputs + place * winograd_apart(count * s.channels) + channel, s.channels,
                         count, matrix, nullptr, sum, 0, tile_end - tile, to, outputs);
          }
          if (plan.keeps_slabs) slab += plan.slab_weights;
        }
        const FloatFinish part(finish.activation,
                               finish.residual ? finish.residual + output : nullptr);
        k.winograd_output(sums, count, outputs, bias ? bias + output : nullptr, part, at,
                          y + output);
      }
    }
  };
  work.pool.parallel_for(plan.pieces, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t piece = begin; piece < end; ++piece) run_piece(piece);
  });
}

}  // namespace satchel
