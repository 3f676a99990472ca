// The loops are written in assembly, so that they are these instructions and nothing else, and so
// that this file can be compiled for the baseline.

#include "int8_rate.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>

#include "kernels.h"
#include "measure.h"
#include "tile_config.h"

namespace satchel {
namespace {

// A loop and how many multiply-accumulates one turn of it does.
struct Loop {
  void (*run)(int64_t turns);
  double per_turn;
};

#if defined(__x86_64__) && defined(__GNUC__)

#define SATCHEL_CLOBBERED                                                                  \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc"

// 12 sums hide the latency of one multiplication on every core so far.
void run_avx512(int64_t turns) {
  __asm__ volatile(
      "vpcmpeqd %%ymm12, %%ymm12, %%ymm12\n"
      "vpternlogd $255, %%zmm12, %%zmm12, %%zmm12\n"
      "vpternlogd $255, %%zmm13, %%zmm13, %%zmm13\n"
      "1:\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm0\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm1\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm2\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm3\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm4\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm5\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm6\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm7\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm8\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm9\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm10\n"
      "vpdpbusd %%zmm12, %%zmm13, %%zmm11\n"
      "dec %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(turns)
      :
      : SATCHEL_CLOBBERED);
}

// Products are summed in 16 bits, which has room for several products of 4-bit weights: the
// fewest instructions that AVX2 can do it with.
void run_avx2(int64_t turns) {
  __asm__ volatile(
      "vpcmpeqd %%ymm12, %%ymm12, %%ymm12\n"
      "vpcmpeqd %%ymm13, %%ymm13, %%ymm13\n"
      "1:\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm6\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm7\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm8\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm9\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm10\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm11\n"
      "vpaddw %%ymm6, %%ymm0, %%ymm0\n"
      "vpaddw %%ymm7, %%ymm1, %%ymm1\n"
      "vpaddw %%ymm8, %%ymm2, %%ymm2\n"
      "vpaddw %%ymm9, %%ymm3, %%ymm3\n"
      "vpaddw %%ymm10, %%ymm4, %%ymm4\n"
      "vpaddw %%ymm11, %%ymm5, %%ymm5\n"
      "dec %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(turns)
      :
      : SATCHEL_CLOBBERED);
}

// Four sums of two tiles of activations and two of weights, as in the kernels.
void run_amx(int64_t turns) {
  TileConfig config;  // belongs to the thread
  std::fill(config.row_bytes, config.row_bytes + 8, uint16_t{64});
  std::fill(config.rows, config.rows + 8, uint8_t{16});
  __asm__ volatile(
      "ldtilecfg %1\n"
      "tilezero %%tmm0\n"
      "tilezero %%tmm1\n"
      "tilezero %%tmm2\n"
      "tilezero %%tmm3\n"
      "tilezero %%tmm4\n"
      "tilezero %%tmm5\n"
      "tilezero %%tmm6\n"
      "tilezero %%tmm7\n"
      "1:\n"
      "tdpbsud %%tmm6, %%tmm4, %%tmm0\n"
      "tdpbsud %%tmm7, %%tmm4, %%tmm1\n"
      "tdpbsud %%tmm6, %%tmm5, %%tmm2\n"
      "tdpbsud %%tmm7, %%tmm5, %%tmm3\n"
      "dec %0\n"
      "jnz 1b\n"
      "tilerelease\n"
      : "+r"(turns)
      : "m"(config)
      : "cc");
}

Loop loop_of(const std::string& table) {
  if (table == "avx512") return {run_avx512, 12.0 * 64};
  if (table == "avx2") return {run_avx2, 6.0 * 32};
  if (table == "amx") return {run_amx, 4.0 * 16 * 16 * 64};
  throw std::invalid_argument("there is no loop for the int8 rate of '" + table + "'");
}

#else

Loop loop_of(const std::string& table) {
  throw std::invalid_argument("there is no loop for the int8 rate of '" + table + "'");
}

#endif

// As many turns as take some 20 ms, so that starting the threads does not count.
int64_t enough_turns(const Loop& loop) {
  using Clock = std::chrono::steady_clock;
  for (int64_t turns = 1000;; turns *= 2) {
    const Clock::time_point begin = Clock::now();
    loop.run(turns);
    if (turns >= int64_t{1} << 40 || Clock::now() - begin > std::chrono::milliseconds(20))
      return turns;
  }
}

}  // namespace

double measure_int8_rate(int threads, const std::string& table, int repeats) {
  kernels_by_name(table);  // throws where this CPU has not got it, and asks for the use of tiles
  const Loop loop = loop_of(table);
  const int64_t turns = enough_turns(loop);
  threads = std::max(threads, 1);
  const double seconds = shortest_round(threads, repeats, [&] { return [&] { loop.run(turns); }; });
  return loop.per_turn * static_cast<double>(turns) * threads / seconds;
}

}  // namespace satchel
