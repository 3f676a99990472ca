#include "recorder.h"

#include <algorithm>
#include <array>

#include "../runtime/errors.h"

namespace satchel::vulkan {

namespace {

constexpr uint32_t kSetsInPool = 256;

}  // namespace

Groups groups_for(uint64_t threads, uint32_t size) {
  const uint64_t groups = (threads + size - 1) / size;
  const uint64_t rows = (groups + kMostGroups - 1) / kMostGroups;
  return {static_cast<uint32_t>((groups + rows - 1) / rows), static_cast<uint32_t>(rows)};
}

Recorder::~Recorder() {
  if (device_.is_abandoned()) return;
  for (const VkDescriptorPool pool : pools_)
    device_->vkDestroyDescriptorPool(device_.handle(), pool, nullptr);
}

View Recorder::view(const Place& place) const {
  const uint64_t begin = place.offset / kOffsetStep * kOffsetStep;
  const uint64_t range = round_up(place.offset + place.size - begin, 4);
  if (range > device_.info().properties.limits.maxStorageBufferRange)
    throw ExecutionError("on the GPU: " + std::to_string(range) +
                         " bytes are more than a shader can see at once");
  return {place.buffer, begin, range, static_cast<uint32_t>((place.offset - begin) / 4)};
}

void Recorder::begin(VkCommandBuffer commands) {
  commands_ = commands;
  sets_used_ = 0;
  for (const VkDescriptorPool pool : pools_)
    require_success(device_->vkResetDescriptorPool(device_.handle(), pool, 0), "descriptors");
}

VkDescriptorSet Recorder::take_set() {
  if (sets_used_ == pools_.size() * kSetsInPool) {
    VkDescriptorPoolSize size;
    size.descriptorCount = kSetsInPool * kMostBindings;
    VkDescriptorPoolCreateInfo create;
    create.maxSets = kSetsInPool;
    create.poolSizeCount = 1;
    create.pPoolSizes = &size;
    VkDescriptorPool pool = nullptr;
    require_success(device_->vkCreateDescriptorPool(device_.handle(), &create, nullptr, &pool),
                    "descriptors");
    pools_.push_back(pool);
  }
  const VkDescriptorSetLayout layout = pipelines_.set_layout();
  VkDescriptorSetAllocateInfo allocate;
  allocate.descriptorPool = pools_[sets_used_++ / kSetsInPool];
  allocate.descriptorSetCount = 1;
  allocate.pSetLayouts = &layout;
  VkDescriptorSet set = nullptr;
  require_success(device_->vkAllocateDescriptorSets(device_.handle(), &allocate, &set),
                  "descriptors");
  return set;
}

void Recorder::dispatch(const char* shader, const Constants& constants,
                        std::initializer_list<View> views, const void* push, uint32_t push_bytes,
                        Groups groups) {
  const VkDescriptorSet set = take_set();
  std::array<VkDescriptorBufferInfo, kMostBindings> infos;
  std::array<VkWriteDescriptorSet, kMostBindings> writes;
  uint32_t count = 0;
  for (const View& view : views) {
    infos[count] = {view.buffer, view.offset, view.range};
    writes[count].dstSet = set;
    writes[count].dstBinding = count;
    writes[count].pBufferInfo = &infos[count];
    ++count;
  }
  device_->vkUpdateDescriptorSets(device_.handle(), count, writes.data(), 0, nullptr);
  device_.barrier(commands_);
  device_->vkCmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE,
                             pipelines_.find(shader, constants));
  device_->vkCmdBindDescriptorSets(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, pipelines_.layout(),
                                   0, 1, &set, 0, nullptr);
  device_->vkCmdPushConstants(commands_, pipelines_.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                              push_bytes, push);
  device_->vkCmdDispatch(commands_, groups.x, groups.y, 1);
}

void Recorder::copy(const Place& from, const Place& to) {
  device_.barrier(commands_);
  const VkBufferCopy piece{from.offset, to.offset, from.size};
  device_->vkCmdCopyBuffer(commands_, from.buffer, to.buffer, 1, &piece);
}

}  // namespace satchel::vulkan
