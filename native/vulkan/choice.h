// The next tokens, chosen from logits where they are.
#pragma once

#include "../runtime/chain.h"
#include "recorder.h"

namespace satchel::vulkan {

class Choice {
 public:
  explicit Choice(const Device& device);

  // Of a run, and of a vocabulary from which some are left out.
  static constexpr size_t kMostTokens = 64, kMostLogits = 512 * 1024;

  // What is known before the runs of a chain. Whether it needs other commands than the chain
  // before.
  bool prepare(const Chain& chain);
  // What the shaders read of a run: its number, and how each of its tokens is chosen.
  std::vector<uint32_t> words(const Chain& chain, size_t run) const;
  // Where the device has what penalties and biases are about, and what is to be brought there
  // before the first run; of no size if there are none.
  Place past() const;
  const uint8_t* past_bytes() const { return reinterpret_cast<const uint8_t*>(past_words_.data()); }

  // `logits` of so many tokens; `words` is where those of the run lie. The tokens go to `tokens`,
  // and behind those of the runs before in the list.
  void record(Recorder& recorder, const Place& logits, uint32_t count, const Place& words,
              const Place& tokens);
  // The runs' tokens, in 32 bits: where later runs read them, and where the host does once they
  // were copied there.
  Place chosen() const { return {chosen_.handle(), 0, chosen_.size()}; }
  Place shown() const { return {shown_.handle(), 0, shown_.size()}; }
  const uint8_t* shown_bytes() const { return shown_.data(); }

 private:
  Place at_least(std::unique_ptr<Buffer>& buffer, uint64_t bytes) const;

  const Device& device_;
  Buffer chosen_, shown_;
  bool has_past_ = false, leaves_out_ = false;
  std::vector<uint32_t> past_words_;
  std::unique_ptr<Buffer> past_;
  std::unique_ptr<Buffer> blocks_;          // of logits: what the first step makes of them
  std::unique_ptr<Buffer> ordered_, sums_;  // the same of each logit, where some are left out
};

}  // namespace satchel::vulkan
