#include "choice.h"

#include "run_inputs.h"

namespace satchel::vulkan {

namespace {

constexpr uint64_t kBlock = 1024, kBlockBytes = 16;  // of shaders/sample.glsl

}  // namespace

Choice::Choice(const Device& device)
    : device_(device), chosen_(device, RunInputs::kMostRuns * sizeof(int32_t), Where::host) {}

void Choice::record(Recorder& recorder, const Place& logits, const Place& choice,
                    const Place& token, float temperature) {
  const uint64_t count = logits.size / sizeof(float), groups = (count + kBlock - 1) / kBlock;
  if (!blocks_ || blocks_->size() < groups * kBlockBytes)
    blocks_ = std::make_unique<Buffer>(device_, groups * kBlockBytes, Where::device);
  const View from = recorder.view(logits),
             blocks = recorder.view({blocks_->handle(), 0, groups * kBlockBytes}),
             how = recorder.view(choice), to = recorder.view(token),
             list = recorder.view({chosen_.handle(), 0, chosen_.size()});
  const Constants constants{temperature > 0};
  const float inverse = temperature > 0 ? 1.0f / temperature : 0.0f;
  const struct {
    uint32_t count, logits_first;
    float inverse_temperature;
  } first{static_cast<uint32_t>(count), from.first, inverse};
  recorder.dispatch("sample_blocks", constants, {from, written(blocks)}, first,
                    {static_cast<uint32_t>(groups)});
  const struct {
    uint32_t count, logits_first, choice_first, token_first, chosen_first;
    float inverse_temperature;
  } second{first.count, from.first, how.first, to.first, list.first, inverse};
  recorder.dispatch("sample", constants, {from, blocks, how, written(to), written(list)}, second,
                    {1});
}

}  // namespace satchel::vulkan
