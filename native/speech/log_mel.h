// The logarithm of a sound's mel spectrum, as Whisper takes it.
#pragma once

#include <cstdint>
#include <vector>

namespace satchel {

// Frames of 400 samples at 16 kHz, 160 apart, each under a Hann window.
constexpr int64_t kFrameSamples = 400, kFrameStep = 160, kFrequencies = kFrameSamples / 2 + 1;

// Filters over the frequencies of a frame; of each, only the ones that it lets through are kept.
class MelFilters {
 public:
  // filters: [mels][kFrequencies]
  MelFilters(const float* filters, int64_t mels);
  int64_t mels() const { return static_cast<int64_t>(filters_.size()); }
  // power: [kFrequencies][kLanes of frames]; the sums of a filter, of each frame.
  void apply(int64_t mel, const float* power, int64_t lanes, float* out) const;

 private:
  struct Filter {
    int64_t first = 0;
    std::vector<float> weights;
  };
  std::vector<Filter> filters_;
};

// How many frames lie wholly in so many samples.
constexpr int64_t whole_frames(int64_t samples) {
  return samples < kFrameSamples ? 0 : (samples - kFrameSamples) / kFrameStep + 1;
}

// out [frames][mels]: log10 of at least 1e-10. `samples` has all that the frames lie in.
void log_mel(const float* samples, int64_t frames, const MelFilters& filters, float* out);

}  // namespace satchel
