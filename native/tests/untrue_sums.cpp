// Integer layers with sums of weights that are not theirs, as a hostile file may have them. Wrong
// numbers are fine; in a build with -fsanitize=undefined, anything undefined ends the program.

#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "kernels.h"

using namespace satchel;

namespace {

void run(const KernelTable& kernels, int32_t sum) {
  constexpr int64_t kOutputs = 19, kSteps = 3, kRows = 5;  // the last tile is not full
  const std::vector<int8_t> codes(2 * kSteps * kTileRows * 4, -127);
  const std::vector<int32_t> sums(2 * kTileRows, sum);
  const std::vector<uint8_t> x(kRows * kSteps * 4, 255);
  const std::vector<float> scale(kOutputs, 1.0f);
  std::vector<float> out(kRows * kOutputs);
  const IntegerMatrix w{kOutputs, kSteps, codes.data(), sums.data()};
  IntegerResult result{};
  result.x_zero = 255;
  result.scale = scale.data();
  result.out = out.data();
  result.ldo = result.ldr = kOutputs;
  kernels.linear_i8(x.data(), kSteps * 4, kRows, w, result, 0, 2);
  for (const Activation activation : {Activation::none, Activation::silu}) {
    result.activation = activation;
    result.inverse_out_scale = 1e-6f;
    kernels.linear_i8(x.data(), kSteps * 4, kRows, w, result, 0, 2);
  }
}

}  // namespace

int main() {
  for (const char* name : {"portable", "avx2"}) {
    try {
      const KernelTable& kernels = kernels_by_name(name);
      for (const int32_t sum : {std::numeric_limits<int32_t>::min(), -1, 1 << 30,
                                std::numeric_limits<int32_t>::max()}) {
        run(kernels, sum);
      }
      std::printf("%s\n", name);
    } catch (const std::exception&) {  // not on this machine
    }
  }
  return 0;
}
