// Codes of 5 and 6 bits as they lie in a tile: see kernels.h.
#pragma once

#include <cstdint>

namespace satchel {
namespace {

// A step of a tile: lines of 64 bytes, each with four columns of its 16 rows in the lower bits.
// What is left in the lines, one behind the other, are the bits of further fours of columns.
template <int kCodeBits>
struct PackedBits {
  static constexpr int kBits = kCodeBits, kSpare = 8 - kBits;
  static constexpr int kLines = kBits == 6 ? 3 : 5, kFours = kLines * 8 / kBits;
  static constexpr int kColumns = 4 * kFours, kStepBytes = 64 * kLines;
  static constexpr int kColumnBytes = kStepBytes / kColumns;
  static constexpr int kMask = (1 << kBits) - 1;
  // Products of codes and activations whose sum 16 bits hold: 4 * 63 * 127 and 8 * 31 * 127.
  static constexpr int kProductsIn16Bits = kBits == 6 ? 4 : 8;

  // What a line has of the i-th four, behind those that have lines of their own: its bytes moved
  // down by so many bits have it in the mask.
  struct Piece {
    int down, mask;
  };
  static constexpr Piece piece(int i, int line) {
    const int wanted = (i - kLines) * kBits, spare = line * kSpare;
    const int first = wanted > spare ? wanted : spare;
    const int last = wanted + kBits < spare + kSpare ? wanted + kBits : spare + kSpare;
    if (first >= last) return {0, 0};
    return {kBits + first - spare - (first - wanted), ((1 << (last - first)) - 1)
                                                          << (first - wanted)};
  }

  // Byte `at` of the i-th four columns of a step.
  static inline int code(const uint8_t* step, int i, int64_t at) {
    if (i < kLines) return step[i * 64 + at] & kMask;
    int code = 0;
    for (int line = 0; line < kLines; ++line) {
      const Piece part = piece(i, line);
      code |= step[line * 64 + at] >> part.down & part.mask;
    }
    return code;
  }
};
using Bits5 = PackedBits<5>;
using Bits6 = PackedBits<6>;

}  // namespace
}  // namespace satchel
