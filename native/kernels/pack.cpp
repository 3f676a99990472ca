#include "pack.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "half.h"
#include "run_scales.h"

namespace satchel {
namespace {

int64_t tiles_of(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

struct Tally {
  Doubles error = {}, weight = {};
  int64_t first_bad = -1;

  void add(Floats w, Floats meant) {
    error += squared_difference(w, meant);
    weight += squared_difference(w, splat(0.0f));
  }
  void note_bad(int64_t index) {
    if (first_bad < 0 || index < first_bad) first_bad = index;
  }
};

// What is whole already, as an integer.
Bits whole_number(Floats x) { return (Bits)(x + splat(kRound)) - 0x4b400000u; }

// Four codes as integers: q + offset.
Bits quantize4(const float* w, float scale, float lowest, float highest, uint32_t offset,
               Tally& tally) {
  const Floats values = load(w);
  // Dividing by infinity gives q = 0 where the scale is 0.
  const Floats q =
      rounded(values / splat(scale == 0.0f ? __builtin_inff() : scale), lowest, highest);
  tally.add(values, q * splat(scale));
  return whole_number(q) + offset;
}

void put4(uint8_t* out, Bits codes) {
  const Bytes bytes = __builtin_convertvector(codes, Bytes);
  std::memcpy(out, &bytes, sizeof bytes);
}

// One group of one row with this scale; `out` is the row's place in the group's first 64-byte step.
void pack_group(MatrixEncoding encoding, const float* w, int64_t n, float scale, uint8_t* out,
                int64_t index, Tally& tally) {
  if (!is_finite(scale)) {
    const float* bad = std::find_if(w, w + n, [](float x) { return !is_finite(x); });
    tally.note_bad(index + (bad == w + n ? std::find(w, w + n, extreme(w, n)) - w : bad - w));
    return;
  }
  if (encoding != MatrixEncoding::q8) {
    for (int64_t c = 0; c < n; c += 8, out += 64) {
      const Bits low = quantize4(w + c, scale, -8.0f, 7.0f, 8, tally);
      put4(out, low | quantize4(w + c + 4, scale, -8.0f, 7.0f, 8, tally) << 4);
    }
  } else {
    for (int64_t c = 0; c < n; c += 4, out += 64) {
      put4(out, quantize4(w + c, scale, -127.0f, 127.0f, 128, tally));
    }
  }
}

// The scales of a row's groups, one run after the other, and each run when its groups are done.
template <class Put, class PutRun>
void choose_scales(MatrixEncoding encoding, const float* w, int64_t groups, int64_t group, Put put,
                   PutRun put_run) {
  if (encoding == MatrixEncoding::q8) {
    for (int64_t g = 0; g < groups; ++g) {
      put(g, half_bits_to_float(
                 float_to_half_bits(__builtin_fabsf(extreme(w + g * group, group)) / 127.0f)));
    }
    return;
  }
  const int64_t in_run = std::max<int64_t>(1, kRunColumns / group);
  for (int64_t first = 0; first < groups; first += in_run) {
    const int64_t n = std::min(in_run, groups - first);
    const RunScales run(w + first * group, n, group, encoding == MatrixEncoding::q4_steps);
    for (int64_t g = 0; g < n; ++g) put(first + g, run.scales[g]);
    put_run(n, run);
  }
}

// The step that a group of lpbq4 needs.
float needed_step(const float* w, int64_t n) {
  Floats high = splat(w[0]), low = high;
  for (int64_t i = 0; i < n; i += kWidth) {
    const Floats v = load(w + i);
    high = v > high ? v : high;
    low = v < low ? v : low;
  }
  const float top = std::max(std::max(high[0], high[1]), std::max(high[2], high[3]));
  const float bottom = std::min(std::min(low[0], low[1]), std::min(low[2], low[3]));
  return std::max(top / 7.0f, bottom / -8.0f);
}

// A step of lpbq4: its codes, and what they mean.
struct BlockStep {
  float scale, factor, step;

  Floats codes(Floats w) const { return rounded(w / splat(step), -8.0f, 7.0f); }
  Floats meant(Floats q) const { return q * splat(scale) * splat(factor); }

  double squared_error(const float* w, int64_t n) const {
    Doubles error = {};
    for (int64_t i = 0; i < n; i += kWidth) {
      error += squared_difference(load(w + i), meant(codes(load(w + i))));
    }
    return (error[0] + error[1]) + (error[2] + error[3]);
  }
};

BlockStep best_step(const float* w, int64_t n, float factor) {
  const float whole = __builtin_ceilf(needed_step(w, n) / factor);
  BlockStep best{};
  double least = __builtin_inf();
  for (float scale = whole - 3.0f; scale <= whole + 1.0f; ++scale) {
    const float allowed = std::min(std::max(scale, 1.0f), 16.0f);
    const BlockStep tried{allowed, factor, allowed * factor};
    const double error = tried.squared_error(w, n);
    if (error < least) least = error, best = tried;
  }
  return best;
}

struct Work {
  MatrixEncoding encoding;
  const float* rows;
  int64_t n_rows, cols, group;
  uint8_t* codes;
  uint16_t* scales;
  float* factors;  // lpbq4
};

// lpbq4: a row's factor comes from all of its groups.
void pack_blockwise_tile(const Work& work, int64_t tile, int64_t real_rows, Tally& tally) {
  const int64_t groups = work.cols / work.group, group = work.group;
  uint8_t* codes = work.codes + tile * (work.cols / 8) * 64;
  uint16_t* scales = work.scales + tile * groups * kTileRows;
  float* factors = work.factors + tile * kTileRows;
  std::memset(codes, 0x88, static_cast<size_t>(work.cols / 8 * 64));
  std::memset(scales, 0, sizeof(uint16_t) * static_cast<size_t>(groups * kTileRows));
  std::memset(factors, 0, sizeof(float) * kTileRows);
  for (int64_t r = 0; r < real_rows; ++r) {
    const int64_t index = (tile * kTileRows + r) * work.cols;
    const float* w = work.rows + index;
    const float* bad = std::find_if(w, w + work.cols, [](float x) { return !is_finite(x); });
    if (bad != w + work.cols) {
      tally.note_bad(index + (bad - w));
      continue;
    }
    float largest = 0.0f;
    for (int64_t g = 0; g < groups; ++g) {
      largest = std::max(largest, needed_step(w + g * group, group));
    }
    const float factor = factors[r] = largest / 16.0f;
    for (int64_t g = 0; g < groups; ++g) {
      const float* part = w + g * group;
      const BlockStep step =
          factor == 0.0f ? BlockStep{1.0f, 0.0f, __builtin_inff()} : best_step(part, group, factor);
      scales[g * kTileRows + r] = float_to_half_bits(step.scale);
      uint8_t* out = codes + g * (group / 8) * 64 + r * 4;
      for (int64_t c = 0; c < group; c += 8, out += 64) {
        Bits code[2];
        for (int half = 0; half < 2; ++half) {
          const Floats values = load(part + c + half * 4), q = step.codes(values);
          tally.add(values, step.meant(q));
          code[half] = whole_number(q) + 8;
        }
        put4(out, code[0] | code[1] << 4);
      }
    }
  }
}

void pack_quantized_tile(const Work& work, int64_t tile, int64_t real_rows, Tally& tally) {
  const int64_t groups = work.cols / work.group;
  const bool has_bytes = work.encoding == MatrixEncoding::q8,
             has_steps = work.encoding == MatrixEncoding::q4_steps;
  const int64_t per_step = has_bytes ? 4 : 8;
  uint8_t* codes = work.codes + tile * (work.cols / per_step) * 64;
  const int64_t scales_size = scales_in_tile(work.encoding, work.cols, work.group);
  uint16_t* scales = work.scales + tile * scales_size;
  if (real_rows < kTileRows) {
    std::memset(codes, has_bytes ? 0x80 : 0x88, static_cast<size_t>(work.cols / per_step * 64));
    std::memset(scales, 0, sizeof(uint16_t) * static_cast<size_t>(scales_size));
  }
  for (int64_t r = 0; r < real_rows; ++r) {
    const int64_t row = (tile * kTileRows + r) * work.cols;
    const auto put_group = [&](int64_t g, float scale) {
      const int64_t index = row + g * work.group;
      if (!has_steps) scales[g * kTileRows + r] = float_to_half_bits(scale);
      pack_group(work.encoding, work.rows + index, work.group, scale,
                 codes + g * (work.group / per_step) * 64 + r * 4, index, tally);
    };
    float* steps = reinterpret_cast<float*>(scales);
    const auto put_run = [&](int64_t n, const RunScales& run) {
      if (!has_steps) return;
      int8_t* multiples = reinterpret_cast<int8_t*>(steps + kTileRows);
      steps[r] = run.step;
      for (int64_t g = 0; g < n; ++g)
        multiples[g * kTileRows + r] = static_cast<int8_t>(run.multiples[g]);
      steps = reinterpret_cast<float*>(multiples + n * kTileRows);
    };
    choose_scales(work.encoding, work.rows + row, groups, work.group, put_group, put_run);
  }
}

// i8: no rounding, so there is no error to tally.
void pack_integer_tile(const Work& work, int64_t tile, int64_t real_rows, Tally& tally) {
  const int64_t steps = (work.cols + 3) / 4;
  uint8_t* codes = work.codes + tile * steps * 64;
  int32_t sums[kTileRows] = {};
  std::memset(codes, 0, static_cast<size_t>(steps * 64));
  for (int64_t r = 0; r < real_rows; ++r) {
    const int64_t index = (tile * kTileRows + r) * work.cols;
    for (int64_t c = 0; c < work.cols; ++c) {
      const float w = work.rows[index + c];
      if (!(w >= -127.0f && w <= 127.0f) || w != __builtin_rintf(w)) {
        tally.note_bad(index + c);
        continue;
      }
      tally.add(Floats{w}, Floats{w});
      const auto code = static_cast<int8_t>(w);
      codes[c / 4 * 64 + r * 4 + c % 4] = static_cast<uint8_t>(code);
      sums[r] += code;
    }
  }
  std::memcpy(work.scales + tile * kTileRows * 2, sums, sizeof sums);
}

// f32 and f16: [cols][16]; rows come in pieces that stay in the cache while they are transposed.
template <class Stored, class Convert>
void pack_float_tile(const Work& work, int64_t tile, int64_t real_rows, Tally& tally,
                     Convert convert) {
  constexpr int64_t kPiece = 256;
  Stored* out = reinterpret_cast<Stored*>(work.codes) + tile * work.cols * kTileRows;
  Stored piece[kTileRows][kPiece] = {};
  float meant[kPiece];
  for (int64_t c = 0; c < work.cols; c += kPiece) {
    const int64_t n = std::min(kPiece, work.cols - c);
    for (int64_t r = 0; r < real_rows; ++r) {
      const int64_t index = (tile * kTileRows + r) * work.cols + c;
      const float* w = work.rows + index;
      convert(w, n, piece[r], meant);
      bool bad = false;
      int64_t i = 0;
      for (; i + kWidth <= n; i += kWidth) tally.add(load(w + i), load(meant + i));
      for (; i < n; ++i) tally.add(Floats{w[i]}, Floats{meant[i]});
      for (i = 0; i < n; ++i) bad |= !is_finite(meant[i]);
      if (bad) {
        tally.note_bad(index + (std::find_if_not(meant, meant + n, is_finite) - meant));
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t r = 0; r < kTileRows; ++r) out[(c + i) * kTileRows + r] = piece[r][i];
    }
  }
}

void pack_tile(const Work& work, int64_t tile, Tally& tally) {
  const int64_t real_rows = std::min(kTileRows, work.n_rows - tile * kTileRows);
  if (work.encoding == MatrixEncoding::f32) {
    pack_float_tile<float>(work, tile, real_rows, tally,
                           [](const float* w, int64_t n, float* stored, float* meant) {
                             std::copy(w, w + n, stored);
                             std::copy(w, w + n, meant);
                           });
  } else if (work.encoding == MatrixEncoding::f16) {
    const KernelTable& kernels = *available_kernels().back();
    pack_float_tile<uint16_t>(work, tile, real_rows, tally,
                              [&](const float* w, int64_t n, uint16_t* stored, float* meant) {
                                kernels.float_to_half(w, n, stored);
                                kernels.half_to_float(stored, n, meant);
                              });
  } else if (work.encoding == MatrixEncoding::lpbq4) {
    pack_blockwise_tile(work, tile, real_rows, tally);
  } else if (work.encoding == MatrixEncoding::i8) {
    pack_integer_tile(work, tile, real_rows, tally);
  } else {
    pack_quantized_tile(work, tile, real_rows, tally);
  }
}

}  // namespace

PackedSizes packed_sizes(MatrixEncoding encoding, int64_t rows, int64_t cols, int64_t group) {
  if (rows < 0 || cols < 0) throw std::invalid_argument("a matrix has no negative sizes");
  const size_t padded = static_cast<size_t>((rows + kTileRows - 1) / kTileRows * kTileRows);
  const size_t cells = padded * static_cast<size_t>(cols);
  if (encoding == MatrixEncoding::f32) return {cells * 4, 0, 0};
  if (encoding == MatrixEncoding::f16) return {cells * 2, 0, 0};
  if (encoding == MatrixEncoding::i8) {
    return {padded * ((static_cast<size_t>(cols) + 3) / 4 * 4), padded * sizeof(int32_t), 0};
  }
  const bool five = encoding == MatrixEncoding::q5 || encoding == MatrixEncoding::q5_min;
  const int64_t unit = encoding == MatrixEncoding::q8 ? 4 : five ? 32 : 8;
  if (group <= 0 || group % unit != 0 || cols % group != 0) {
    throw std::invalid_argument("a group must be a multiple of " + std::to_string(unit) +
                                " and divide the columns: group " + std::to_string(group) +
                                ", columns " + std::to_string(cols));
  }
  if (encoding == MatrixEncoding::q4_steps && kRunColumns % group != 0) {
    throw std::invalid_argument("a group of q4_steps must divide " + std::to_string(kRunColumns) +
                                ": " + std::to_string(group));
  }
  const int64_t own_group = encoding == MatrixEncoding::q6_k ? 16 : 32;
  if (has_superblocks(encoding) && (group != own_group || cols % kSuperblock != 0)) {
    throw std::invalid_argument("a K-quant has groups of " + std::to_string(own_group) +
                                " in blocks of " + std::to_string(kSuperblock) +
                                " columns: group " + std::to_string(group) + ", columns " +
                                std::to_string(cols));
  }
  const size_t codes = cells / kTileRows * static_cast<size_t>(column_bytes(encoding));
  if (encoding == MatrixEncoding::q4_steps || has_superblocks(encoding)) {
    return {codes,
            padded / kTileRows * 2 * static_cast<size_t>(scales_in_tile(encoding, cols, group)), 0};
  }
  const size_t scales = cells / static_cast<size_t>(group) * 2;
  if (encoding != MatrixEncoding::lpbq4) return {codes, scales, 0};
  const size_t factors = (scales + 63) / 64 * 64;
  return {codes, factors + padded * sizeof(float), factors};
}

void pack_rows(MatrixEncoding encoding, const float* rows, int64_t n_rows, int64_t cols,
               int64_t group, uint8_t* codes, uint16_t* scales, PackStats* stats, int threads) {
  const PackedSizes sizes = packed_sizes(encoding, n_rows, cols, group);
  Work work{encoding, rows, n_rows, cols, group, codes, scales, nullptr};
  if (encoding == MatrixEncoding::lpbq4) {
    uint16_t* factors = scales + sizes.factors / sizeof(uint16_t);
    work.factors = reinterpret_cast<float*>(factors);
    std::fill(scales + tiles_of(n_rows) * kTileRows * (cols / group), factors, uint16_t{0});
  }
  const int64_t tiles = tiles_of(n_rows);
  // Each tile has its own tally, added up in order: the sums are the same for any thread count.
  std::vector<Tally> tallies(static_cast<size_t>(tiles));
  std::atomic<int64_t> next{0};
  const auto run = [&] {
    for (int64_t tile; (tile = next.fetch_add(1)) < tiles;) {
      pack_tile(work, tile, tallies[static_cast<size_t>(tile)]);
    }
  };
  std::vector<std::thread> others;
  for (int64_t t = 1; t < std::min<int64_t>(threads, tiles); ++t) others.emplace_back(run);
  run();
  for (std::thread& t : others) t.join();

  PackStats result;
  for (const Tally& t : tallies) {
    result.squared_error += t.error[0] + t.error[1] + t.error[2] + t.error[3];
    result.squared_weight += t.weight[0] + t.weight[1] + t.weight[2] + t.weight[3];
    if (result.first_bad < 0) result.first_bad = t.first_bad;
  }
  if (stats != nullptr) *stats = result;
}

}  // namespace satchel
