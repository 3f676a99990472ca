#include "executor.h"

#include <algorithm>
#include <cstring>

#include "../runtime/errors.h"

namespace satchel::vulkan {

namespace {

DeviceInfo find_device(size_t number) {
  const std::vector<DeviceInfo> devices = Library::get().devices();
  if (number >= devices.size()) {
    throw ExecutionError("there is no Vulkan device " + std::to_string(number) + "; there are " +
                         std::to_string(devices.size()) + ", which satchel doctor lists");
  }
  const DeviceInfo& info = devices[number];
  const VkPhysicalDeviceLimits& limits = info.properties.limits;
  if (limits.maxPerStageDescriptorStorageBuffers < kMostBindings ||
      limits.maxComputeWorkGroupInvocations < 256 || limits.maxComputeWorkGroupSize[0] < 256) {
    throw ExecutionError(info.name() + " is too small: shaders need " +
                         std::to_string(kMostBindings) +
                         " buffers and workgroups of 256. Use --target cpu");
  }
  return info;
}

uint64_t bytes_of(const Tensor& t) {
  return static_cast<uint64_t>(t.elements()) * dtype_size(t.dtype);
}

}  // namespace

// Everything is recorded anew for each call: sizes and pages may be others.
class VulkanPart : public Part, private Work {
 public:
  VulkanPart(VulkanExecutor& executor, BoundMethod& method, const PartInfo& info)
      : Work(executor.device_.info(), executor.recorder_, executor.tables_),
        executor_(executor),
        method_(method),
        info_(info) {
    for (size_t n = info.first; n < info.last; ++n) {
      ops_.push_back(find_op(method.calls()[n].info->op->name));
      for (const Tensor* t : method.calls()[n].inputs) {
        if (t && t->weight) load(*t->weight);
      }
    }
    for (const uint32_t id : info.takes) add_crossing(id);
    for (const uint32_t id : info.gives) add_crossing(id);
    crossings_ = std::make_unique<Buffer>(executor.device_, crossing_bytes_, Where::host);
  }

  void bind() override {}

  void take(uint32_t value, const uint8_t* from) override {
    std::memcpy(crossings_->data() + offsets_.at(value), from, bytes_of(method_.tensor(value)));
  }

  void give(uint32_t value, uint8_t* to) override {
    std::memcpy(to, crossings_->data() + offsets_.at(value), bytes_of(method_.tensor(value)));
  }

  void run(Sequences& of_instance) override {
    sequences = &of_instance;
    tables.clear();
    uint64_t needed = 0;
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (ops_[i]->prepare) ops_[i]->prepare(call(i), *this);
      if (ops_[i]->scratch) needed = std::max(needed, ops_[i]->scratch(call(i)));
    }
    tables.publish(executor_.device_);
    if (needed > 0 && (!executor_.scratch_ || executor_.scratch_->size() < needed))
      executor_.scratch_ = std::make_unique<Buffer>(executor_.device_, needed, Where::device);
    executor_.device_.run([this](VkCommandBuffer commands) { record(commands); },
                          method_.method().name.c_str());
    executor_.pipelines_.keep();
  }

 private:
  NodeCall& call(size_t i) { return method_.calls()[info_.first + i]; }

  void load(const WeightEntry& weight) {
    executor_.weights_.of(weight.codes, weight.codes_size);
    if (weight.scales_size > 0) executor_.weights_.of(weight.scales, weight.scales_size);
  }

  // A value that comes from the host or goes to it has a place that both see. Inputs of the method
  // are used there.
  void add_crossing(uint32_t id) {
    offsets_[id] = crossing_bytes_;
    crossing_bytes_ += round_up(method_.tensor(id).info->max_bytes, kOffsetStep);
  }

  Place crossing(uint32_t id) {
    return {crossings_->handle(), offsets_.at(id), bytes_of(method_.tensor(id))};
  }

  void record(VkCommandBuffer commands) {
    recorder.begin(commands);
    for (const uint32_t id : info_.takes) {
      if (!is_input(method_.tensor(id))) recorder.copy(crossing(id), place(method_.tensor(id)));
    }
    for (size_t i = 0; i < ops_.size(); ++i) ops_[i]->record(call(i), *this);
    for (const uint32_t id : info_.gives) recorder.copy(place(method_.tensor(id)), crossing(id));
  }

  Place place(const Tensor& t) override {
    switch (t.info->storage) {
      case Storage::input:
        return crossing(static_cast<uint32_t>(&t - method_.tensors().data()));
      case Storage::weight:
        return bytes_of_file(t.weight->codes, t.weight->codes_size);
      case Storage::state:
        if (t.paged) return state(t).place();
        return {state(t).place().buffer, 0, bytes_of(t)};
      default:
        return {executor_.arena_->handle(), t.info->location, bytes_of(t)};
    }
  }

  Place bytes_of_file(const uint8_t* bytes, uint64_t size) override {
    return executor_.weights_.of(bytes, size);
  }

  Place scratch(uint64_t bytes) override { return {executor_.scratch_->handle(), 0, bytes}; }

  DeviceState& state(const Tensor& t) override { return *executor_.states_[t.info->location]; }

  VulkanExecutor& executor_;
  BoundMethod& method_;
  PartInfo info_;
  std::vector<const VulkanOp*> ops_;
  std::map<uint32_t, uint64_t> offsets_;
  uint64_t crossing_bytes_ = 0;
  std::unique_ptr<Buffer> crossings_;
};

VulkanExecutor::VulkanExecutor(size_t device, std::string cache_folder)
    : device_(find_device(device)),
      pipelines_(device_, std::move(cache_folder)),
      recorder_(device_, pipelines_),
      transfers_(device_),
      weights_(device_, transfers_) {
  if (device > 0) name_ += ":" + std::to_string(device);
}

std::string VulkanExecutor::refuses(const NodeCall& call) const {
  const VulkanOp* op = find_op(call.info->op->name);
  if (!op) return std::string("the GPU has no shader for ") + call.info->op->name;
  const auto refuses_array = [&](const Tensor& t) -> std::string {
    if (t.info->storage == Storage::state || (t.weight && t.weight->is_matrix())) return {};
    if (t.dtype != DType::f32 && t.dtype != DType::i32 && !op->any_type)
      return std::string("the GPU takes no arrays of ") + dtype_name(t.dtype);
    if (bytes_of(t) > device_.info().largest_binding() - kOffsetStep)
      return "an array is larger than what a shader can see at once";
    return {};
  };
  // A node that only works on states has an output without meaning.
  for (const Tensor* t : call.inputs) {
    const std::string reason = t ? refuses_array(*t) : "";
    if (!reason.empty()) return reason;
  }
  if (!call.info->op->writes_state) {
    const std::string reason = refuses_array(*call.output);
    if (!reason.empty()) return reason;
  }
  return op->refuses(call, device_.info());
}

void VulkanExecutor::open(std::shared_ptr<const Program> program, uint64_t arena_bytes) {
  if (program_) throw ExecutionError("the executor " + name_ + " serves another instance already");
  program_ = std::move(program);
  arena_ = std::make_unique<Buffer>(device_, arena_bytes, Where::device);
  states_.assign(program_->states().size(), nullptr);
}

std::unique_ptr<StateMemory> VulkanExecutor::make_state(size_t state, uint64_t bytes) {
  auto memory = std::make_unique<DeviceState>(device_, transfers_, bytes);
  if (!program_->states()[state].is_cache) memory->reserve(bytes);
  states_[state] = memory.get();
  return memory;
}

std::unique_ptr<Part> VulkanExecutor::prepare(BoundMethod& method, const PartInfo& info) {
  return std::make_unique<VulkanPart>(*this, method, info);
}

}  // namespace satchel::vulkan
