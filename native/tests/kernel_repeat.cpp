// Runs one quantised linear layer several times, for counting instructions:
//   kernel_repeat <table> <q4|q8|i8> <tokens> <rows> <cols> <group> <times>
// Two counts with different times differ by the layer alone. i8 is the layer of calibrated
// networks, from codes to codes, and has no groups.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "kernels.h"
#include "pack.h"

using namespace satchel;

namespace {

int64_t tiles_of(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

int run_codes(const KernelTable& kernels, int64_t m, int64_t rows, int64_t cols, int64_t times) {
  const int64_t steps = (cols + 3) / 4, stride = steps * 4, outputs = tiles_of(rows) * kTileRows;
  std::vector<int8_t> weights(static_cast<size_t>(outputs * stride));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<int8_t>(i * 37 + 11);
  std::vector<int32_t> sums(static_cast<size_t>(outputs));
  for (size_t i = 0; i < weights.size(); ++i) {  // [tile][step][16][4]
    const size_t tile = i / static_cast<size_t>(stride * kTileRows);
    sums[tile * kTileRows + i / 4 % kTileRows] += weights[i];
  }
  std::vector<uint8_t> x(static_cast<size_t>(m * stride)), y(static_cast<size_t>(m * rows));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 29 + 3);
  const std::vector<float> scales(static_cast<size_t>(outputs), 1e-3f);
  const IntegerMatrix w{rows, steps, weights.data(), sums.data()};
  const IntegerResult result{128, scales.data(), nullptr, Activation::relu, nullptr,  0,   0.0f,
                             0,   0.1f,          128,     nullptr,          y.data(), rows};
  for (int64_t i = 0; i < times; ++i) {
    kernels.linear_i8(x.data(), stride, m, w, result, 0, tiles_of(rows));
  }
  return y.empty() ? 1 : 0;
}

int run(char** argv) {
  const KernelTable& kernels = kernels_by_name(argv[1]);
  const bool q4 = std::strcmp(argv[2], "q4") == 0;
  const int64_t m = std::atoll(argv[3]), rows = std::atoll(argv[4]), cols = std::atoll(argv[5]);
  const int64_t group = std::atoll(argv[6]), times = std::atoll(argv[7]);
  if (std::strcmp(argv[2], "i8") == 0) return run_codes(kernels, m, rows, cols, times);
  const MatrixEncoding encoding = q4 ? MatrixEncoding::q4 : MatrixEncoding::q8;
  const PackedSizes sizes = packed_sizes(encoding, rows, cols, group);

  std::vector<uint8_t> codes(sizes.codes);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 37 + 11);
  const std::vector<uint16_t> scales(sizes.scales / 2, 0x2000);
  std::vector<float> x(static_cast<size_t>(m * cols)), y(static_cast<size_t>(m * rows));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 101) - 50.0f;
  const PackedMatrix w{encoding, rows, cols, group, codes.data(), scales.data()};

  const int64_t stride = (cols + 63) / 64 * 64;
  std::vector<int8_t> x_codes(static_cast<size_t>(m * stride));
  std::vector<float> x_scales(static_cast<size_t>(m));
  std::vector<int32_t> sums(static_cast<size_t>(m * (cols / group)));
  const QuantizedRows quantized{m,          cols, stride, group, x_codes.data(), x_scales.data(),
                                sums.data()};
  kernels.quantize_rows(x.data(), cols, quantized);
  for (int64_t i = 0; i < times; ++i) {
    (q4 ? kernels.linear_q4 : kernels.linear_q8)(quantized, w, nullptr, 0, tiles_of(rows), y.data(),
                                                 rows);
  }
  return y.empty() || y[0] != y[0] ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fprintf(stderr, "usage: %s table q4|q8|i8 tokens rows cols group times\n", argv[0]);
    return 2;
  }
  try {
    return run(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
