#include "executor.h"

#include <algorithm>
#include <cstring>
#include <cstdio>
#include <cstdlib>

#include "../runtime/errors.h"
#include "fusion.h"

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

// Commands are recorded when sizes or buffers are others than before; what differs from step to
// step lies in tables.
class VulkanPart : public Part, private Work {
 public:
  VulkanPart(VulkanExecutor& executor, BoundMethod& method, const PartInfo& info)
      : Work(executor.device_.info(), recorder_, tables_),
        executor_(executor),
        method_(method),
        info_(info),
        recorder_(executor.device_, executor.pipelines_),
        tables_(executor.device_),
        steps_(fuse({method, info, executor.device_.info()}, executor.weights_)),
        places_({method, info, executor.device_.info()}, steps_) {
    for (size_t n = info.first; n < info.last; ++n) {
      for (const Tensor* t : method.calls()[n].inputs) {
        if (t && t->weight) load(*t->weight);
      }
    }
    uint64_t taken = 0, given = 0;
    for (const uint32_t id : info.takes) add_crossing(id, taken);
    for (const uint32_t id : info.gives) add_crossing(id, given);
    taken_ = std::make_unique<Buffer>(executor.device_, taken, Where::upload);
    given_ = std::make_unique<Buffer>(executor.device_, given, Where::host);
    executor.need_arena(places_.bytes());
  }

  void bind() override { commands_ = nullptr; }

  void take(uint32_t value, const uint8_t* from) override {
    std::memcpy(taken_->data() + offsets_.at(value), from, bytes_of(method_.tensor(value)));
  }

  void give(uint32_t value, uint8_t* to) override {
    std::memcpy(to, given_->data() + offsets_.at(value), bytes_of(method_.tensor(value)));
  }

  void run(Sequences& of_instance) override {
    sequences = &of_instance;
    tables_.clear();
    for (const FusedStep& fused : steps_) fused.step->prepare(*this);
    Device& device = executor_.device_;
    if (!tables_.publish()) commands_ = nullptr;
    if (!commands_ || recorded_with_ != device.buffers_made()) record();
    device.submit(commands_, method_.method().name.c_str());
    if (tells_times()) print_times();
  }

 private:
  // SATCHEL_VULKAN_TIMES=1: what each shader took, by the device's clock. Nothing overlaps then.
  static bool tells_times() { return std::getenv("SATCHEL_VULKAN_TIMES"); }

  void print_times() const {
    std::map<std::string, std::pair<int, double>> sums;
    for (const Recorder::Timing& timing : recorder_.timings()) {
      auto& [count, seconds] = sums[timing.shader];
      ++count, seconds += timing.seconds;
    }
    std::fprintf(stderr, "%s:\n", method_.method().name.c_str());
    for (const auto& [shader, sum] : sums) {
      std::fprintf(stderr, "  %-28s %4d x %8.1f us\n", shader.c_str(), sum.first,
                   sum.second / sum.first * 1e6);
    }
  }

  void load(const WeightEntry& weight) {
    executor_.weights_.of(weight.codes, weight.codes_size);
    if (weight.scales_size > 0) executor_.weights_.of(weight.scales, weight.scales_size);
  }

  // A value that comes from the host or goes to it has a place that both see. Inputs of the method
  // are used there.
  void add_crossing(uint32_t id, uint64_t& bytes) {
    offsets_[id] = bytes;
    bytes += round_up(method_.tensor(id).info->max_bytes, kOffsetStep);
  }

  Place crossing(const Buffer& buffer, uint32_t id) {
    return {buffer.handle(), offsets_.at(id), bytes_of(method_.tensor(id))};
  }

  void record() {
    uint64_t needed = 0;
    for (const FusedStep& fused : steps_) needed = std::max(needed, fused.step->scratch(*this));
    if (needed > 0 && (!executor_.scratch_ || executor_.scratch_->size() < needed))
      executor_.scratch_ = std::make_unique<Buffer>(executor_.device_, needed, Where::device);
    recorder_.set_timed(tells_times());
    recorder_.begin();
    for (const uint32_t id : info_.takes) {
      if (!is_input(method_.tensor(id)))
        recorder_.copy(crossing(*taken_, id), place(method_.tensor(id)));
    }
    for (const FusedStep& fused : steps_) fused.step->record(*this);
    for (const uint32_t id : info_.gives)
      recorder_.copy(place(method_.tensor(id)), crossing(*given_, id));
    commands_ = recorder_.finish(method_.method().name.c_str());
    recorded_with_ = executor_.device_.buffers_made();
    executor_.pipelines_.keep();
  }

  Place place(const Tensor& t) override {
    const auto id = static_cast<uint32_t>(&t - method_.tensors().data());
    switch (t.info->storage) {
      case Storage::input:
        return crossing(*taken_, id);
      case Storage::weight:
        return bytes_of_file(t.weight->codes, t.weight->codes_size);
      case Storage::state:
        if (t.paged) return state(t).place();
        return {state(t).place().buffer, 0, bytes_of(t)};
      default:
        return {executor_.arena_->handle(), places_.bytes() ? places_.offset(id) : t.info->location,
                bytes_of(t)};
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
  Recorder recorder_;
  HostTables tables_;
  std::vector<FusedStep> steps_;
  Places places_;
  std::map<uint32_t, uint64_t> offsets_;  // of values that cross
  std::unique_ptr<Buffer> taken_, given_;
  VkCommandBuffer commands_ = nullptr;  // null: to be recorded
  uint64_t recorded_with_ = 0;          // how many buffers there had been
};

VulkanExecutor::VulkanExecutor(size_t device, std::string cache_folder)
    : device_(find_device(device)),
      pipelines_(device_, std::move(cache_folder)),
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

void VulkanExecutor::need_arena(uint64_t bytes) {
  if (bytes > arena_->size()) arena_ = std::make_unique<Buffer>(device_, bytes, Where::device);
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
