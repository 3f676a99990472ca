// The blocks of a scan: sequential ones become samples at once, those of progressive pictures are
// kept until the last scan has been read.
#include "jpeg.h"

namespace satchel::vision::jpeg {

namespace {

[[noreturn]] void damaged() { throw ImageError("its data are damaged"); }

// The bits of a scan: 0xFF is followed by 0, and any other byte behind it is a marker.
class Bits {
 public:
  Bits(Bytes file, size_t place) : file_(file), place_(place) {}

  uint32_t take(int count) {
    if (count == 0) return 0;
    const uint32_t value = peek(count);
    drop(count);
    return value;
  }
  uint8_t symbol(const HuffmanCode& code) {
    const HuffmanCode::Entry entry = code.find(peek(HuffmanCode::kMostBits));
    if (entry.length == 0) damaged();
    drop(entry.length);
    return entry.symbol;
  }
  // A number of so many bits, of which the lower half are the negative ones.
  int32_t number(int bits) {
    const auto value = static_cast<int32_t>(take(bits));
    return bits == 0 || value >> (bits - 1) != 0 ? value : value - (1 << bits) + 1;
  }
  // What is left of the last byte is dropped; a marker of a restart must follow.
  void restart(uint32_t number) {
    held_ = 0;
    buffer_ = 0;
    while (place_ + 1 < file_.size() && file_[place_] == 0xFF && file_[place_ + 1] == 0xFF)
      ++place_;
    if (place_ + 1 >= file_.size()) throw ImageError("its data end too early");
    if (file_[place_] != 0xFF || file_[place_ + 1] != 0xD0 + number % 8) damaged();
    place_ += 2;
  }
  size_t place() const { return place_; }

 private:
  void fill() {
    while (held_ <= 56 && place_ < file_.size()) {
      const uint8_t byte = file_[place_];
      if (byte == 0xFF) {
        if (place_ + 1 >= file_.size() || file_[place_ + 1] != 0) return;
        ++place_;
      }
      ++place_;
      buffer_ = buffer_ << 8 | byte;
      held_ += 8;
    }
  }
  // Behind the end there are zeros, which cannot be dropped.
  uint32_t peek(int count) {
    if (held_ < count) fill();
    const uint64_t bits = held_ >= count ? buffer_ >> (held_ - count) : buffer_ << (count - held_);
    return static_cast<uint32_t>(bits) & ((1u << count) - 1);
  }
  void drop(int count) {
    if (count > held_) throw ImageError("its data end too early");
    held_ -= count;
  }

  Bytes file_;
  size_t place_;
  uint64_t buffer_ = 0;
  int held_ = 0;
};

class Decoder {
 public:
  Decoder(const Scan& scan, Bits& bits) : scan_(scan), bits_(bits) {}

  void restart() { previous_.fill(0), run_ = 0; }

  // All coefficients of a block.
  void sequential(Block& block, size_t part, const HuffmanCode& dc, const HuffmanCode& ac) {
    block[0] = next_dc(part, dc);
    for (int k = 1; k < 64; ++k) {
      const uint8_t found = bits_.symbol(ac);
      const int zeros = found >> 4, size = found & 15;
      if (size == 0) {
        if (zeros != 15) return;
        k += 15;
        continue;
      }
      k += zeros;
      if (k > 63) damaged();
      at(block, k) = static_cast<int16_t>(bits_.number(size));
    }
  }

  // The part of a block's coefficients that a scan of a progressive picture has.
  void progressive(Block& block, size_t part, const HuffmanCode& dc, const HuffmanCode& ac) {
    if (scan_.first == 0) {
      if (scan_.high == 0) {
        block[0] = shifted(next_dc(part, dc));
      } else if (bits_.take(1) != 0) {
        block[0] = static_cast<int16_t>(block[0] | one());
      }
    } else if (scan_.high == 0) {
      first_bits(block, ac);
    } else {
      further_bit(block, ac);
    }
  }

 private:
  int16_t one() const { return static_cast<int16_t>(1 << scan_.low); }
  int16_t shifted(int32_t value) const { return static_cast<int16_t>(value * (1 << scan_.low)); }
  static int16_t& at(Block& block, int k) { return block[kZigzag[static_cast<size_t>(k)]]; }

  int16_t next_dc(size_t part, const HuffmanCode& dc) {
    const uint8_t size = bits_.symbol(dc);
    if (size > 15) damaged();
    previous_[part] = static_cast<int16_t>(previous_[part] + bits_.number(size));
    return previous_[part];
  }

  void begin_run(int bits) {  // of blocks that have no more coefficients, this one included
    run_ = (1u << bits) + bits_.take(bits);
  }

  void first_bits(Block& block, const HuffmanCode& ac) {
    if (run_ > 0) {
      --run_;
      return;
    }
    for (int k = scan_.first; k <= scan_.last; ++k) {
      const uint8_t found = bits_.symbol(ac);
      const int zeros = found >> 4, size = found & 15;
      if (size == 0 && zeros < 15) {
        begin_run(zeros);
        --run_;
        return;
      }
      k += zeros;
      if (size == 0) continue;
      if (k > scan_.last) damaged();
      at(block, k) = shifted(bits_.number(size));
    }
  }

  // One bit more of a coefficient that is not zero.
  void refine(int16_t& value) {
    if (bits_.take(1) != 0 && (value & one()) == 0)
      value = static_cast<int16_t>(value + (value >= 0 ? one() : -one()));
  }

  void further_bit(Block& block, const HuffmanCode& ac) {
    int k = scan_.first;
    while (run_ == 0 && k <= scan_.last) {
      const uint8_t found = bits_.symbol(ac);
      int zeros = found >> 4;
      const int size = found & 15;
      int16_t fresh = 0;
      if (size != 0) {
        fresh = static_cast<int16_t>(bits_.take(1) != 0 ? one() : -one());
      } else if (zeros < 15) {
        begin_run(zeros);
        break;
      }
      for (; k <= scan_.last; ++k) {
        int16_t& value = at(block, k);
        if (value != 0) {
          refine(value);
        } else if (--zeros < 0) {
          break;
        }
      }
      if (fresh != 0) {
        if (k > scan_.last) damaged();
        at(block, k) = fresh;
      }
      ++k;
    }
    if (run_ == 0) return;
    for (; k <= scan_.last; ++k) {
      if (at(block, k) != 0) refine(at(block, k));
    }
    --run_;
  }

  const Scan& scan_;
  Bits& bits_;
  std::array<int16_t, 4> previous_{};
  uint32_t run_ = 0;
};

}  // namespace

size_t read_scan(Frame& frame, const Tables& tables, const Scan& scan, Bytes file, size_t place) {
  Bits bits(file, place);
  Decoder decoder(scan, bits);
  const auto decode = [&](size_t number, int64_t column, int64_t row) {
    const ScanPart& part = scan.parts[number];
    Component& component = frame.components[part.component];
    if (frame.progressive) {
      Block& block = component.blocks[static_cast<size_t>(row * component.columns + column)];
      decoder.progressive(block, number, tables.dc[part.dc], tables.ac[part.ac]);
      return;
    }
    Block block{};
    decoder.sequential(block, number, tables.dc[part.dc], tables.ac[part.ac]);
    const int64_t stride = component.columns * 8;
    transform(block, tables.quantization[component.table],
              component.samples.data() + row * 8 * stride + column * 8, stride);
  };
  // A scan of one component has no more blocks than that has samples for.
  const bool alone = scan.parts.size() == 1;
  const Component& only = frame.components[scan.parts[0].component];
  const int64_t across = alone ? (only.width + 7) / 8 : frame.units_across;
  const int64_t down = alone ? (only.height + 7) / 8 : frame.units_down;
  uint32_t left = tables.restart_interval, restarts = 0;
  for (int64_t y = 0; y < down; ++y) {
    for (int64_t x = 0; x < across; ++x) {
      if (tables.restart_interval != 0 && left-- == 0) {
        bits.restart(restarts++);
        decoder.restart();
        left = tables.restart_interval - 1;
      }
      if (alone) {
        decode(0, x, y);
        continue;
      }
      for (size_t number = 0; number < scan.parts.size(); ++number) {
        const Component& component = frame.components[scan.parts[number].component];
        for (int64_t row = y * component.down; row < (y + 1) * component.down; ++row) {
          for (int64_t column = x * component.across; column < (x + 1) * component.across; ++column)
            decode(number, column, row);
        }
      }
    }
  }
  return bits.place();
}

}  // namespace satchel::vision::jpeg
