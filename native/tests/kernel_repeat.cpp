// Runs one quantised linear layer several times, for counting instructions:
//   kernel_repeat <table> <q4|q8> <tokens> <rows> <cols> <group> <times>
// Two counts with different times differ by the layer alone.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "kernels.h"
#include "pack.h"

using namespace satchel;

namespace {

int run(char** argv) {
  const KernelTable& kernels = kernels_by_name(argv[1]);
  const bool q4 = std::strcmp(argv[2], "q4") == 0;
  const int64_t m = std::atoll(argv[3]), rows = std::atoll(argv[4]), cols = std::atoll(argv[5]);
  const int64_t group = std::atoll(argv[6]), times = std::atoll(argv[7]);
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
    (q4 ? kernels.linear_q4 : kernels.linear_q8)(
        quantized, w, nullptr, 0, (rows + kTileRows - 1) / kTileRows, y.data(), rows);
  }
  return y.empty() || y[0] != y[0] ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fprintf(stderr, "usage: %s table q4|q8 tokens rows cols group times\n", argv[0]);
    return 2;
  }
  try {
    return run(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
