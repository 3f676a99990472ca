// Convolutions with a kernel of 3 x 3 pixels in floats, by Winograd's F(2 x 2, 3 x 3): 2.25 times fewer products.
// The weights are transformed in each call, which is little beside the products of a larger image.
#pragma once

#include <utility>

#include "conv_panel.h"

namespace satchel {

// How such a layer is shared out. What one core writes and another reads is expensive to write again, so that
// each piece transforms what it needs by itself: all weights for its share of the image, or, where there are
// more weights than pixels, the whole image for its share of the outputs.
struct Winograd {
  static constexpr int64_t kPlaces = 16;

  int64_t across, down, tiles;  // of 2 x 2 pixels
  int64_t weight_tiles, pieces;
  bool by_outputs;
  int64_t blocks, block_tiles;  // of a piece: tiles of a block are done together
  size_t weights, pointers, offsets, inputs, sums, piece_bytes, outside;

  Winograd(const ConvShape& s, int threads)
      : across((s.out_w + 1) / 2), down((s.out_h + 1) / 2), tiles(s.pixels / (s.out_h * s.out_w) * across * down),
        weight_tiles((s.outputs + kTileRows - 1) / kTileRows), pieces(threads), by_outputs(s.outputs > tiles) {
    const int64_t piece_tiles = by_outputs ? tiles : (tiles + pieces - 1) / pieces;
    const int64_t piece_weight_tiles = by_outputs ? (weight_tiles + pieces - 1) / pieces : weight_tiles;
    const int64_t outputs = piece_weight_tiles * kTileRows;
    // A block's numbers should stay in the cache, but all weights pass over each block.
    const int64_t fitting = std::clamp<int64_t>(kBlockBytes / (kPlaces * 4 * (s.channels + outputs)), 56, 112);
    blocks = (piece_tiles + fitting - 1) / fitting;
    block_tiles = (piece_tiles + blocks - 1) / blocks;
    const auto bytes = [](int64_t numbers, size_t size) {
      return static_cast<size_t>(round_up(numbers * static_cast<int64_t>(size), 64));
    };
    weights = bytes(kPlaces * outputs * s.channels, sizeof(float));
    pointers = bytes(block_tiles * kPlaces, sizeof(float*));
    offsets = bytes(block_tiles * 4, sizeof(int64_t));
    inputs = bytes(kPlaces * block_tiles * s.channels, sizeof(float));
    sums = bytes(kPlaces * block_tiles * outputs, sizeof(float));
    piece_bytes = scratch_apart(weights + pointers + offsets + inputs + sums, threads);
    outside = bytes(s.channels, sizeof(float));
  }

  size_t scratch() const { return outside + piece_bytes * static_cast<size_t>(pieces); }

  // Whether a layer gains: enough pixels for the transform of the weights, and channels for that of the image.
  static bool suits(const ConvShape& s, MatrixEncoding encoding) {
    const Window& w = s.window;
    return encoding == MatrixEncoding::f32 && !s.transposed && s.groups == 1 && w.kernel_h == 3 && w.kernel_w == 3 &&
           w.stride_h == 1 && w.stride_w == 1 && w.dilation_h == 1 && w.dilation_w == 1 && s.pixels >= kFewestPixels &&
           std::min(s.channels, s.outputs) >= kFewestChannels && std::max(s.channels, s.outputs) <= kMostChannels;
  }

 private:
  static constexpr int64_t kBlockBytes = 1 << 19, kFewestPixels = 160, kFewestChannels = 32, kMostChannels = 1024;
};

// Where the tiles [begin, begin + count) look, and where their pixels lie in y or -1.
inline void place_tiles(const ConvShape& s, const Winograd& plan, const float* x, const float* zeros, int64_t begin,
                        int64_t count, const float** pixels, int64_t* at) {
  for (int64_t tile = begin; tile < begin + count; ++tile) {
    const int64_t image = tile / (plan.across * plan.down);
    const int64_t oy = tile / plan.across % plan.down * 2, ox = tile % plan.across * 2;
    for (int64_t place = 0; place < Winograd::kPlaces; ++place) {
      const int64_t iy = oy - s.window.top + place / 4, ix = ox - s.window.left + place % 4;
      const bool inside = iy >= 0 && iy < s.height && ix >= 0 && ix < s.width;
      *pixels++ = inside ? x + ((image * s.height + iy) * s.width + ix) * s.channels : zeros;
    }
    for (int64_t pixel = 0; pixel < 4; ++pixel) {
      const int64_t py = oy + pixel / 2, px = ox + pixel % 2;
      const bool inside = py < s.out_h && px < s.out_w;
      *at++ = inside ? ((image * s.out_h + py) * s.out_w + px) * s.outputs : -1;
    }
  }
}

// y = the convolution of x, with all threads.
inline void run_winograd(const ConvShape& s, const float* x, const PackedMatrix& w, const float* bias,
                         const FloatFinish& finish, float* y, const Workspace& work) {
  const Winograd plan(s, work.pool.size());
  const KernelTable& k = work.kernels;
  float* zeros = reinterpret_cast<float*>(work.scratch);
  std::fill_n(zeros, s.channels, 0.0f);
  const auto run_piece = [&](int64_t piece) {
    const int64_t all = plan.by_outputs ? plan.weight_tiles : plan.tiles;
    const int64_t from = piece * all / plan.pieces, to = (piece + 1) * all / plan.pieces;
    if (from == to) return;
    const int64_t first = plan.by_outputs ? 0 : from, last = plan.by_outputs ? plan.tiles : to;
    const int64_t weight_tile = plan.by_outputs ? from : 0, weight_end = plan.by_outputs ? to : plan.weight_tiles;
    const int64_t output = weight_tile * kTileRows, outputs = std::min(weight_end * kTileRows, s.outputs) - output;
    uint8_t* own = work.scratch + plan.outside + static_cast<size_t>(piece) * plan.piece_bytes;
    const auto take = [&own](size_t bytes) { return std::exchange(own, own + bytes); };
    auto* weights = reinterpret_cast<float*>(take(plan.weights));
    auto** pixels = reinterpret_cast<const float**>(take(plan.pointers));
    auto* at = reinterpret_cast<int64_t*>(take(plan.offsets));
    auto* inputs = reinterpret_cast<float*>(take(plan.inputs));
    auto* sums = reinterpret_cast<float*>(take(plan.sums));
    const FloatFinish part(finish.activation, finish.residual ? finish.residual + output : nullptr);
    k.winograd_weights(w, weight_tile, weight_end, weights);
    const int64_t place_weights = (weight_end - weight_tile) * kTileRows * s.channels;
    for (int64_t block = 0; block < plan.blocks; ++block) {
      const int64_t begin = first + block * (last - first) / plan.blocks;
      const int64_t count = first + (block + 1) * (last - first) / plan.blocks - begin;
      place_tiles(s, plan, x, zeros, begin, count, pixels, at);
      k.winograd_input(pixels, count, s.channels, inputs);
      for (int64_t place = 0; place < Winograd::kPlaces; ++place) {
        const PackedMatrix matrix{MatrixEncoding::f32, outputs, s.channels, 0,
                                  reinterpret_cast<const uint8_t*>(weights + place * place_weights), nullptr};
        k.linear_f32(inputs + place * count * s.channels, s.channels, count, matrix, nullptr, Activation::none, 0,
                     weight_end - weight_tile, sums + place * count * outputs, outputs);
      }
      k.winograd_output(sums, count, outputs, bias ? bias + output : nullptr, part, at, y + output);
    }
  };
  work.pool.parallel_for(plan.pieces, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t piece = begin; piece < end; ++piece) run_piece(piece);
  });
}

}  // namespace satchel
