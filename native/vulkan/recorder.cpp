#include "recorder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "../runtime/errors.h"

namespace satchel::vulkan {

namespace {

constexpr uint32_t kSetsInPool = 256, kMostTimes = 8192;

// Those that have a form with turns, whose name ends so.
bool can_take_a_turn(const char* shader) {
  constexpr const char* names[] = {"embedding", "linear_one", "attention_one", "attention_join",
                                   "turns_try"};
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char* name) { return std::strcmp(name, shader) == 0; });
}
constexpr const char* kInTurn = "_in_turn";

}  // namespace

Groups groups_for(uint64_t threads, uint32_t size) {
  const uint64_t groups = (threads + size - 1) / size;
  const uint64_t rows = (groups + kMostGroups - 1) / kMostGroups;
  return {static_cast<uint32_t>((groups + rows - 1) / rows), static_cast<uint32_t>(rows)};
}

Recorder::Recorder(const Device& device, Pipelines& pipelines)
    : device_(device), pipelines_(pipelines) {
  VkCommandPoolCreateInfo pool;
  pool.queueFamilyIndex = device.info().queue_family;
  require_success(device->vkCreateCommandPool(device.handle(), &pool, nullptr, &pool_), "a pool");
  VkCommandBufferAllocateInfo commands;
  commands.commandPool = pool_;
  commands.commandBufferCount = 1;
  const VkResult result = device->vkAllocateCommandBuffers(device.handle(), &commands, &commands_);
  if (result == VK_SUCCESS) return;
  device->vkDestroyCommandPool(device.handle(), pool_, nullptr);
  require_success(result, "a command buffer");
}

Recorder::~Recorder() {
  if (device_.is_abandoned()) return;
  device_->vkDestroyCommandPool(device_.handle(), pool_, nullptr);
  device_->vkDestroyQueryPool(device_.handle(), times_, nullptr);
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

void Recorder::begin(std::span<const Place> awaited) {
  require_success(device_->vkResetCommandPool(device_.handle(), pool_, 0), "commands");
  VkCommandBufferBeginInfo begin;
  begin.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
  require_success(device_->vkBeginCommandBuffer(commands_, &begin), "commands");
  for (const Place& place : awaited)
    device_->vkCmdFillBuffer(commands_, place.buffer, place.offset, place.size, kNotYet);
  place_barrier();
  timed_.clear();
  if (is_timed_) {
    VkQueryPoolCreateInfo create;
    create.queryCount = kMostTimes;
    if (!times_)
      require_success(device_->vkCreateQueryPool(device_.handle(), &create, nullptr, &times_),
                      "times");
    device_->vkCmdResetQueryPool(commands_, times_, 0, kMostTimes);
    write_time("");
  }
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

// Whether something must be over before, which is not awaited value by value.
bool Recorder::touches_earlier(std::span<const Use> uses) const {
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
    return std::any_of(uses_.begin(), uses_.end(), [&](const Use& earlier) {
      return (use.is_written || (earlier.is_written && !(use.is_awaited && earlier.is_in_turn))) &&
             use.buffer == earlier.buffer && use.begin < earlier.end && earlier.begin < use.end;
    });
  });
}

void Recorder::place_barrier() {
  device_.barrier(commands_);
  uses_.clear();
}

void Recorder::wait_for(std::span<const Use> uses) {
  if (touches_earlier(uses)) place_barrier();
  uses_.insert(uses_.end(), uses.begin(), uses.end());
}

void Recorder::dispatch(const char* shader, const Constants& constants,
                        std::initializer_list<View> views, const void* push, uint32_t push_bytes,
                        Groups groups) {
  const VkDescriptorSet set = take_set();
  std::array<VkDescriptorBufferInfo, kMostBindings> infos;
  std::array<VkWriteDescriptorSet, kMostBindings> writes;
  std::array<Use, kMostBindings> uses;
  uint32_t count = 0;
  const bool in_turn = turns_ && !is_timed_ && can_take_a_turn(shader);
  for (const View& view : views) {
    infos[count] = {view.buffer, view.offset, view.range};
    writes[count].dstSet = set;
    writes[count].dstBinding = count;
    writes[count].pBufferInfo = &infos[count];
    uses[count] = {view.buffer,
                   view.offset,
                   view.offset + view.range,
                   view.is_written,
                   in_turn && view.is_awaited,
                   in_turn};
    ++count;
  }
  wait_for({uses.data(), count});
  if (in_turn) {
    const Place sign = turns_->sign();
    infos[count] = {sign.buffer, sign.offset, sign.size};
    writes[count].dstSet = set;
    writes[count].dstBinding = kMostBindings - 1;
    writes[count].pBufferInfo = &infos[count];
  }
  device_->vkUpdateDescriptorSets(device_.handle(), count + (in_turn ? 1 : 0), writes.data(), 0,
                                  nullptr);
  device_->vkCmdBindPipeline(
      commands_, VK_PIPELINE_BIND_POINT_COMPUTE,
      pipelines_.find(in_turn ? shader + std::string(kInTurn) : shader, constants));
  device_->vkCmdBindDescriptorSets(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, pipelines_.layout(),
                                   0, 1, &set, 0, nullptr);
  device_->vkCmdPushConstants(commands_, pipelines_.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                              push_bytes, push);
  device_->vkCmdDispatch(commands_, groups.x, groups.y, 1);
  if (is_timed_) {
    write_time(std::string(shader) + " " + std::to_string(groups.x) + "x" +
               std::to_string(groups.y));
  }
}

void Recorder::write_time(std::string shader) {
  if (timed_.size() == kMostTimes) return;
  place_barrier();
  device_->vkCmdWriteTimestamp(commands_, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, times_,
                               static_cast<uint32_t>(timed_.size()));
  timed_.push_back(std::move(shader));
}

std::vector<Recorder::Timing> Recorder::timings() const {
  std::vector<uint64_t> ticks(timed_.size());
  std::vector<Timing> found;
  constexpr VkFlags wide_and_waiting = 1 | 2;
  if (ticks.empty() || device_->vkGetQueryPoolResults(
                           device_.handle(), times_, 0, static_cast<uint32_t>(ticks.size()),
                           ticks.size() * 8, ticks.data(), 8, wide_and_waiting) != VK_SUCCESS)
    return found;
  const double tick = device_.info().properties.limits.timestampPeriod * 1e-9;
  for (size_t i = 1; i < ticks.size(); ++i)
    found.push_back({timed_[i], static_cast<double>(ticks[i] - ticks[i - 1]) * tick});
  return found;
}

void Recorder::copy(const Place& from, const Place& to) {
  const Use uses[] = {{from.buffer, from.offset, from.offset + from.size, false, false},
                      {to.buffer, to.offset, to.offset + to.size, true, false}};
  wait_for(uses);
  const VkBufferCopy piece{from.offset, to.offset, from.size};
  device_->vkCmdCopyBuffer(commands_, from.buffer, to.buffer, 1, &piece);
  if (is_timed_) write_time("copy");
}

VkCommandBuffer Recorder::finish(const char* what, bool for_host) {
  device_.finish(commands_, what, for_host);
  return commands_;
}

}  // namespace satchel::vulkan
