// The next token, chosen from logits where they are.
#pragma once

#include "recorder.h"

namespace satchel::vulkan {

class Choice {
 public:
  explicit Choice(const Device& device);

  // `choice` has a random number and the run's number; the token goes to
  // `token`, and to the list. Without a temperature it is the likeliest one.
  void record(Recorder& recorder, const Place& logits, const Place& choice, const Place& token,
              float temperature);
  const uint8_t* chosen() const { return chosen_.data(); }  // the runs' tokens, in 32 bits

 private:
  const Device& device_;
  Buffer chosen_;
  std::unique_ptr<Buffer> blocks_;  // of logits: what the first step makes of them
};

}  // namespace satchel::vulkan
