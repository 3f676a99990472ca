// Brings sound of any rate to 16 kHz, with a filter that spans the borders of blocks.
#pragma once

#include <cstdint>
#include <vector>

namespace satchel::speech {

constexpr int64_t kRate = 16000;

class Resampler {
 public:
  explicit Resampler(int64_t rate);
  // What can be told of the sound so far, and the rest as if silence followed.
  std::vector<float> push(const std::vector<float>& block);
  std::vector<float> finish();

 private:
  int64_t up_, down_, half_ = 0;
  int64_t skip_ = 0;            // the output's next place, in steps of 1 / up of an input sample
  std::vector<float> filters_;  // [phase][taps]
  std::vector<float> waiting_;
};

}  // namespace satchel::speech
