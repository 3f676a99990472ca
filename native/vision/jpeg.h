// A JPEG on its way to pixels: what its markers say, the blocks of its scans, its samples.
#pragma once

#include <array>

#include "image.h"

namespace satchel::vision::jpeg {

using Block = std::array<int16_t, 64>;          // coefficients, in natural order
using Quantization = std::array<uint16_t, 64>;  // in natural order

// Where the coefficients lie that a file has in zigzag order.
inline constexpr std::array<uint8_t, 64> kZigzag = [] {
  std::array<uint8_t, 64> order{};
  int x = 0, y = 0;
  for (uint8_t& place : order) {
    place = static_cast<uint8_t>(y * 8 + x);
    const bool up = (x + y) % 2 == 0;
    int& ahead = up ? x : y;
    int& back = up ? y : x;
    if (ahead == 7) {
      ++back;
    } else {
      ++ahead;
      if (back > 0) --back;
    }
  }
  return order;
}();

// A prefix code of up to 16 bits, the first bit the highest.
class HuffmanCode {
 public:
  HuffmanCode() = default;
  // How many codes there are of each length from 1 on, and their symbols. Throws ImageError.
  HuffmanCode(std::span<const uint8_t, 16> counts, Bytes symbols);

  static constexpr int kFastBits = 9, kMostBits = 16;
  struct Entry {
    uint8_t symbol, length;  // length 0: there is none
  };
  Entry find(uint32_t bits) const;  // of 16 bits
  bool is_there() const { return is_there_; }

 private:
  bool is_there_ = false;
  std::array<Entry, 1 << kFastBits> fast_{};
  std::array<uint32_t, 17> first_{}, count_{}, index_{};
  std::array<uint8_t, 256> symbols_{};
};

struct Component {
  uint8_t id = 0;
  int across = 1, down = 1;       // blocks in a unit of an interleaved scan
  uint8_t table = 0;              // of its quantisation
  int64_t width = 0, height = 0;  // in samples
  int64_t columns = 0, rows = 0;  // in blocks, up to the end of the last unit
  std::vector<Block> blocks;      // of a progressive picture, until it is whole
  std::vector<uint8_t> samples;   // [rows * 8, columns * 8]
  bool is_decoded = false;

  const uint8_t* row(int64_t y) const { return samples.data() + y * columns * 8; }
};

struct Frame {
  int64_t width = 0, height = 0;
  bool progressive = false;
  int most_across = 1, most_down = 1;
  int64_t units_across = 0, units_down = 0;
  std::vector<Component> components;
  int adobe_transform = -1;  // -1: no such marker
  bool has_jfif = false;
};

struct Tables {
  std::array<Quantization, 4> quantization{};
  std::array<bool, 4> has_quantization{};
  std::array<HuffmanCode, 4> dc, ac;
  uint32_t restart_interval = 0;
};

struct ScanPart {
  size_t component;
  uint8_t dc, ac;
};

struct Scan {
  std::vector<ScanPart> parts;
  int first = 0, last = 63, high = 0, low = 0;  // coefficients, and bits of them
};

// Decodes a scan, whose data begin at `place`; returns where they end.
size_t read_scan(Frame& frame, const Tables& tables, const Scan& scan, Bytes file, size_t place);

// The samples of a block of coefficients, at a row of `stride` bytes.
void transform(const Block& block, const Quantization& steps, uint8_t* to, int64_t stride);

// The pixels of samples of all components.
Image colours(const Frame& frame);

}  // namespace satchel::vision::jpeg
