#include "wav.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "../llm/errors.h"

namespace satchel::speech {

namespace {

constexpr float kLoudest = 100;  // times what sound may be; as open_sound has it in Python
constexpr const char* kAdvice =
    "Give a WAV file of plain samples; Python's satchel transcribe reads other kinds too.";
constexpr int64_t kLowestRate = 1000, kHighestRate = 1000000;
constexpr size_t kMostBytes = 1 << 22;  // of a block: a header may name any number of channels
constexpr uint16_t kWhole = 1, kFloats = 3, kExtensible = 0xFFFE;

static_assert(std::endian::native == std::endian::little, "a file's numbers are read as they are");

template <typename T>
T number(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// From -1 to 1.
float sample(const uint8_t* from, size_t width, bool floats) {
  if (floats) return width == 4 ? number<float>(from) : static_cast<float>(number<double>(from));
  if (width == 1) return (static_cast<float>(from[0]) - 128) / 128;
  uint32_t high = 0;  // the sample's bytes at the upper end of a word
  std::memcpy(reinterpret_cast<uint8_t*>(&high) + (4 - width), from, width);
  return static_cast<float>(static_cast<int32_t>(high)) / 2147483648.0f;
}

}  // namespace

WavFile::WavFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
  if (file_ == nullptr) throw ConfigError("cannot open " + path, "Check the path.");
  read_header();
  if (rate_ < kLowestRate || rate_ > kHighestRate)
    throw ConfigError(path + " has " + std::to_string(rate_) + " samples a second",
                      "Give sound with 1000 to 1000000 of them.");
}

bool WavFile::read_bytes(void* to, size_t count) {
  return std::fread(to, 1, count, file_.get()) == count;
}

void WavFile::read_header() {
  uint8_t head[12];
  if (!read_bytes(head, sizeof head) || std::memcmp(head, "RIFF", 4) != 0 ||
      std::memcmp(head + 8, "WAVE", 4) != 0)
    throw ConfigError(path_ + " is not a WAV file", kAdvice);
  for (uint8_t chunk[8]; read_bytes(chunk, sizeof chunk);) {
    const auto size = number<uint32_t>(chunk + 4);
    if (std::memcmp(chunk, "data", 4) == 0) {
      if (channels_ == 0) break;
      left_ = size;  // programs that write to a pipe say more than there is
      return;
    }
    if (std::memcmp(chunk, "fmt ", 4) == 0) {
      read_format(size);
    } else if (std::fseek(file_.get(), static_cast<long>(size + (size & 1)), SEEK_CUR) != 0) {
      break;
    }
  }
  throw ConfigError(path_ + " has no sound in it", kAdvice);
}

void WavFile::read_format(uint32_t size) {
  uint8_t format[40] = {};
  if (size < 16 || size > sizeof format || !read_bytes(format, size + (size & 1)))
    throw ConfigError(path_ + " is not a WAV file", kAdvice);
  auto kind = number<uint16_t>(format);
  if (kind == kExtensible && size >= 26) kind = number<uint16_t>(format + 24);
  channels_ = number<uint16_t>(format + 2);
  rate_ = number<uint32_t>(format + 4);
  const size_t bits = number<uint16_t>(format + 14);
  width_ = bits / 8;
  floats_ = kind == kFloats;
  const bool known = floats_ ? bits == 32 || bits == 64
                             : kind == kWhole && bits % 8 == 0 && width_ >= 1 && width_ <= 4;
  if (channels_ == 0 || !known)
    throw ConfigError(path_ + " has samples of a kind that is not known here", kAdvice);
}

std::vector<float> WavFile::read(size_t most) {
  const size_t row = channels_ * width_;
  most = std::min(most, std::max<size_t>(1, kMostBytes / row));
  const auto wanted = static_cast<size_t>(std::min<uint64_t>(most, left_ / row));
  std::vector<uint8_t> bytes(wanted * row);
  const size_t rows = std::fread(bytes.data(), 1, bytes.size(), file_.get()) / row;
  left_ = rows < wanted ? 0 : left_ - rows * row;
  std::vector<float> mono(rows);
  for (size_t i = 0; i < rows; ++i) {
    float sum = 0;
    for (size_t c = 0; c < channels_; ++c)
      sum += sample(&bytes[i * row + c * width_], width_, floats_);
    mono[i] = sum / static_cast<float>(channels_);
    if (!std::isfinite(mono[i]))
      throw ConfigError(path_ + " has samples that are not numbers", "Record it again.");
    if (std::abs(mono[i]) > kLoudest)
      throw ConfigError(path_ + " has samples far beyond -1 to 1", "Divide them.");
  }
  return mono;
}

}  // namespace satchel::speech
