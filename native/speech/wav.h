// Recordings in WAV files, a block at a time: one channel of floats.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace satchel::speech {

class WavFile {
 public:
  // Throws ConfigError if it is no WAV file of plain samples.
  explicit WavFile(const std::string& path);

  int64_t rate() const { return rate_; }
  // The next samples, at most so many; none at the end. All channels count alike.
  std::vector<float> read(size_t most);

 private:
  bool read_bytes(void* to, size_t count);
  void read_header();
  void read_format(uint32_t size);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  int64_t rate_ = 0;
  size_t channels_ = 0, width_ = 0;  // width: bytes of a sample
  bool floats_ = false;
  uint64_t left_ = 0;  // bytes of samples
};

}  // namespace satchel::speech
