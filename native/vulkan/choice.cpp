#include "choice.h"

#include "run_inputs.h"

namespace satchel::vulkan {

namespace {

constexpr uint64_t kBlock = 1024, kBlockBytes = 16;  // of shaders/sample.glsl

}  // namespace

Choice::Choice(const Device& device)
    : device_(device),
      chosen_(device, RunInputs::kMostRuns * kMostTokens * sizeof(int32_t), Where::host) {}

void Choice::record(Recorder& recorder, const Place& logits, uint32_t count, const Place& choice,
                    const Place& tokens) {
  const uint64_t vocabulary = logits.size / sizeof(float) / count,
                 groups = (vocabulary + kBlock - 1) / kBlock, bytes = groups * count * kBlockBytes;
  if (!blocks_ || blocks_->size() < bytes)
    blocks_ = std::make_unique<Buffer>(device_, bytes, Where::device);
  const View from = recorder.view(logits), blocks = recorder.view({blocks_->handle(), 0, bytes}),
             how = recorder.view(choice), to = recorder.view(tokens),
             list = recorder.view({chosen_.handle(), 0, chosen_.size()});
  const struct {
    uint32_t vocabulary, logits_first, choice_first;
  } first{static_cast<uint32_t>(vocabulary), from.first, how.first};
  recorder.dispatch("sample_blocks", {}, {from, written(blocks), how}, first,
                    {static_cast<uint32_t>(groups), count});
  const struct {
    uint32_t vocabulary, logits_first, choice_first, tokens_first, chosen_first;
  } second{first.vocabulary, from.first, how.first, to.first, list.first};
  recorder.dispatch("sample", {}, {from, blocks, how, written(to), written(list)}, second, {count});
}

}  // namespace satchel::vulkan
