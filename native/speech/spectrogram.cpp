#include "spectrogram.h"

#include <algorithm>
#include <cmath>

#include "../llm/errors.h"
#include "log_mel.h"
#include "resampler.h"
#include "wav.h"

namespace satchel::speech {

namespace {

constexpr float kSilence = -10;                            // log10 of the least that is told apart
constexpr int64_t kEdge = kFrameSamples / 2, kBehind = 3;  // frames after the end that see some
constexpr size_t kBlock = 1 << 18;                         // samples of a file, at a time

// Triangles of equal area on Slaney's mel scale, which is linear up to 1 kHz: [mels][kFrequencies].
std::vector<float> mel_filters(int64_t mels) {
  const double step = 200.0 / 3, corner = 1000, growth = std::log(6.4) / 27;
  const double highest = corner / step + std::log(kRate / 2 / corner) / growth;
  std::vector<double> edges;
  for (int64_t i = 0; i < mels + 2; ++i) {
    const double mel = highest * static_cast<double>(i) / static_cast<double>(mels + 1);
    edges.push_back(mel < corner / step ? mel * step
                                        : corner * std::exp(growth * (mel - corner / step)));
  }
  std::vector<float> filters;
  for (size_t mel = 0; mel < static_cast<size_t>(mels); ++mel) {
    const double low = edges[mel], middle = edges[mel + 1], high = edges[mel + 2];
    for (int64_t i = 0; i < kFrequencies; ++i) {
      const double hertz = static_cast<double>(i * kRate) / kFrameSamples;
      const double rising = (hertz - low) / (middle - low);
      const double falling = (high - hertz) / (high - middle);
      filters.push_back(
          static_cast<float>(std::max(0.0, std::min(rising, falling)) * 2 / (high - low)));
    }
  }
  return filters;
}

// Samples as they come become frames; the sound goes backwards before its beginning.
class Framer {
 public:
  Framer(int64_t mels, std::vector<float>& out)
      : mels_(mels), filters_(mel_filters(mels).data(), mels), out_(out) {}

  void push(const std::vector<float>& block) {
    samples_ += static_cast<int64_t>(block.size());
    waiting_.insert(waiting_.end(), block.begin(), block.end());
    if (!begun_ && waiting_.size() > static_cast<size_t>(kEdge)) begin(waiting_);
    if (begun_) take();
  }

  // The number of frames of the recording.
  int64_t finish() {
    if (!begun_) begin({});
    const int64_t frames = samples_ / kFrameStep;
    waiting_.resize(waiting_.size() +
                    static_cast<size_t>(kBehind * kFrameStep + 2 * kFrameSamples));
    take();
    out_.resize(static_cast<size_t>((frames + kBehind) * mels_));
    return frames;
  }

 private:
  void begin(const std::vector<float>& sound) {
    std::vector<float> before(static_cast<size_t>(kEdge));
    if (!sound.empty())
      std::reverse_copy(sound.begin() + 1, sound.begin() + 1 + kEdge, before.begin());
    waiting_.insert(waiting_.begin(), before.begin(), before.end());
    begun_ = true;
  }

  void take() {
    const int64_t count = whole_frames(static_cast<int64_t>(waiting_.size()));
    const size_t known = out_.size();
    out_.resize(known + static_cast<size_t>(count * mels_));
    if (count > 0) log_mel(waiting_.data(), count, filters_, &out_[known]);
    waiting_.erase(waiting_.begin(), waiting_.begin() + count * kFrameStep);
  }

  int64_t mels_, samples_ = 0;
  MelFilters filters_;
  std::vector<float>& out_;
  std::vector<float> waiting_;
  bool begun_ = false;
};

}  // namespace

Spectrogram::Spectrogram(const std::string& path, int64_t mels) : mels_(mels) {
  WavFile file(path);
  Resampler resampler(file.rate());
  Framer framer(mels, log_mel_);
  for (std::vector<float> block; !(block = file.read(kBlock)).empty();)
    framer.push(resampler.push(block));
  framer.push(resampler.finish());
  frames_ = framer.finish();
  if (frames_ < 1) throw ConfigError(path + " is too short to hear anything", "Record more.");
  loudest_ = std::max(kSilence, *std::max_element(log_mel_.begin(), log_mel_.end()));
}

float Spectrogram::scaled(float value) const { return (std::max(value, loudest_ - 8) + 4) / 4; }

std::vector<float> Spectrogram::window(int64_t first, int64_t count, int64_t size) const {
  std::vector<float> out(static_cast<size_t>(size * mels_));
  const auto from = log_mel_.begin() + first * mels_;
  std::transform(from, from + count * mels_, out.begin(), [this](float x) { return scaled(x); });
  return out;
}

std::vector<float> Spectrogram::beginning(int64_t size) const {
  std::vector<float> out(static_cast<size_t>(size * mels_), scaled(kSilence));
  const int64_t count = std::min(size, frames_ + kBehind) * mels_;
  std::transform(log_mel_.begin(), log_mel_.begin() + count, out.begin(),
                 [this](float x) { return scaled(x); });
  return out;
}

}  // namespace satchel::speech
