// The next tokens, chosen from logits where they are.
#pragma once

#include "recorder.h"

namespace satchel::vulkan {

class Choice {
 public:
  explicit Choice(const Device& device);

  static constexpr size_t kMostTokens = 64;  // of a run

  // `logits` of so many tokens; `choice` has the run's number and for each of them a random number
  // and what logits are multiplied with, 0 where the likeliest is taken. The tokens go to `tokens`,
  // and behind those of the runs before in the list.
  void record(Recorder& recorder, const Place& logits, uint32_t count, const Place& choice,
              const Place& tokens);
  const uint8_t* chosen() const { return chosen_.data(); }  // the runs' tokens, in 32 bits

 private:
  const Device& device_;
  Buffer chosen_;
  std::unique_ptr<Buffer> blocks_;  // of logits: what the first step makes of them
};

}  // namespace satchel::vulkan
