// The spectrogram of a whole recording, as Whisper hears it: 100 frames a second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace satchel::speech {

class Spectrogram {
 public:
  // Reads the recording once; its frames are kept (115 MB an hour with 80 mels). Throws ConfigError
  // if it cannot be read, or is too short.
  Spectrogram(const std::string& path, int64_t mels);

  int64_t frames() const { return frames_; }
  double seconds() const { return static_cast<double>(frames_) / 100; }
  // Frames first … first + count - 1 as the model takes them, with zeros up to `size`.
  std::vector<float> window(int64_t first, int64_t count, int64_t size) const;
  // The first frames, and silence where there are no more.
  std::vector<float> beginning(int64_t size) const;

 private:
  float scaled(float value) const;

  int64_t mels_, frames_ = 0;
  float loudest_;
  std::vector<float> log_mel_;  // [frames, and some behind the end][mels]
};

}  // namespace satchel::speech
