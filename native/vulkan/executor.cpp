#include "executor.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "../runtime/errors.h"
#include "choice.h"
#include "fitting.h"
#include "fusion.h"
#include "run_inputs.h"

namespace satchel::vulkan {

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

namespace {

constexpr const char* kChoice = "how a token is chosen";

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
        is_of_one_token_(has_one_token()),
        places_({method, info, executor.device_.info()}, steps_, !is_of_one_token_),
        inputs_(executor.device_, executor.pipelines_) {
    for (size_t n = info.first; n < info.last; ++n) {
      for (const Tensor* t : method.calls()[n].inputs) {
        if (t && t->weight) load(*t->weight);
      }
    }
    executor.transfers_.wait();
  }

  void bind() override {
    commands_ = nullptr;
    make_crossings(info_.takes, taken_, Where::upload);
    make_crossings(info_.gives, given_, Where::host);
  }

  void take(uint32_t value, const uint8_t* from) override {
    std::memcpy(taken_->data() + offsets_.at(value), from, bytes_of(method_.tensor(value)));
  }

  void give(uint32_t value, uint8_t* to) override {
    std::memcpy(to, given_->data() + offsets_.at(value), bytes_of(method_.tensor(value)));
  }

  void run(Sequences& of_instance) override {
    sequences = &of_instance;
    if (is_timed_ != (tells_times() || executor_.profile_)) commands_ = nullptr;
    tables_.clear();
    for (const FusedStep& fused : steps_) fused.step->prepare(*this);
    Device& device = executor_.device_;
    if (!tables_.publish() || chooses_) commands_ = nullptr;
    chooses_ = false;
    do {
      if (!commands_ || recorded_with_ != device.buffers_made()) record();
      device.submit({&commands_, 1}, method_.method().name.c_str());
    } while (has_waited_in_vain());
    if (tells_times()) print_times();
    if (executor_.profile_) note_times(*executor_.profile_);
  }

  std::vector<int32_t> run_chain(Sequences& of_instance, Chain& chain) override {
    if (!can_choose(chain)) return {};
    sequences = &of_instance;
    if (!choice_) choice_ = std::make_unique<Choice>(executor_.device_);
    if (choice_->prepare(chain)) commands_ = nullptr;
    const std::vector<int32_t> first = chain.positions;
    size_t runs = runs_alike(chain, first);
    if (!tables_.publish() || !chooses_) commands_ = nullptr;
    chooses_ = true;
    while (true) {
      if (!commands_ || recorded_with_ != executor_.device_.buffers_made()) {
        record();
        feed_inputs();
      }
      runs = submit_runs(chain, first, runs);
      if (!has_waited_in_vain()) break;
      prepare_run(chain, first, 0);
    }
    move_to(chain, first, runs);
    const auto* chosen = reinterpret_cast<const int32_t*>(choice_->shown_bytes());
    return {chosen, chosen + runs * chain.tokens.size()};
  }

 private:
  // Logits of all tokens, of a method that is this part.
  bool can_choose(const Chain& chain) const {
    const Tensor& logits = method_.tensor(method_.method().outputs[0]);
    const size_t tokens = chain.tokens.size();
    return tokens <= Choice::kMostTokens && info_.first == 0 &&
           info_.last == method_.calls().size() && info_.gives.size() == 1 &&
           logits.info->storage == Storage::arena && logits.dtype == DType::f32 &&
           logits.elements() == logits.last() * static_cast<int64_t>(tokens) &&
           logits.last() <= static_cast<int64_t>(Choice::kMostLogits) && !tells_times() &&
           !executor_.profile_;
  }
  bool is_tokens(uint32_t id) const { return method_.tensor(id).info->name == "tokens"; }

  // Whether the method never has more: then values are small, and each can have its own place, so
  // that dispatches can wait for it in turns.
  bool has_one_token() const {
    return std::any_of(info_.takes.begin(), info_.takes.end(), [&](uint32_t id) {
      return is_tokens(id) && method_.tensor(id).info->max_bytes == sizeof(int32_t);
    });
  }
  bool takes_turns() const {
    return executor_.takes_turns_ && !is_timed_ && is_of_one_token_ && places_.bytes() > 0;
  }

  // Then everything is done again, with barriers, and stays so.
  bool has_waited_in_vain() {
    if (!turns_ || !turns_->waited_in_vain()) return false;
    turns_->clear();
    executor_.takes_turns_ = false;
    commands_ = nullptr;
    return true;
  }

  static void move_to(Chain& chain, const std::vector<int32_t>& first, size_t run) {
    for (size_t i = 0; i < first.size(); ++i)
      chain.positions[i] = first[i] + static_cast<int32_t>(run);
  }

  void prepare_run(Chain& chain, const std::vector<int32_t>& first, size_t run) {
    move_to(chain, first, run);
    tables_.clear();
    for (const FusedStep& fused : steps_) fused.step->prepare(*this);
    const std::vector<uint32_t> words = choice_->words(chain, run);
    tables_.add(kChoice, choice_key(), words.data(), words.size() * sizeof(uint32_t));
  }

  // The same, of a run behind the first; not, where the context or the caches' memory end before
  // it: the run that begins there tells.
  bool can_prepare(Chain& chain, const std::vector<int32_t>& first, size_t run) {
    try {
      prepare_run(chain, first, run);
    } catch (const ExecutionError&) {
      return false;
    }
    return true;
  }

  // How many runs can share commands: those whose tables have the same shapes. The host knows all
  // positions. Then tables have room for all of these runs, and are the first one's.
  size_t runs_alike(Chain& chain, const std::vector<int32_t>& first) {
    size_t runs = std::min(chain.runs(), RunInputs::kMostRuns);
    const auto shapes = [&] { return tables_.layout().shapes; };
    // The last one needs the most room.
    bool are_alike = runs == 1 || can_prepare(chain, first, runs - 1);
    const uint64_t of_last = shapes();
    prepare_run(chain, first, 0);
    are_alike = are_alike && (runs == 1 || shapes() == of_last);
    if (are_alike) return runs;
    const uint64_t of_first = shapes();
    const size_t most = runs;
    for (runs = 1; runs < most; ++runs) {
      if (!can_prepare(chain, first, runs) || shapes() != of_first) break;
    }
    prepare_run(chain, first, 0);
    return runs;
  }

  // The device begins with the first runs while the host prepares the others; tables are the first
  // one's already. Returns how many there were: those before one whose tables are elsewhere than
  // the commands look for them.
  size_t submit_runs(Chain& chain, const std::vector<int32_t>& first, size_t runs) {
    Device& device = executor_.device_;
    const std::string& name = method_.method().name;
    const HostTables::Layout layout = tables_.layout();
    const auto serves = [&](size_t run) {
      return can_prepare(chain, first, run) && tables_.layout().shapes == layout.shapes &&
             tables_.layout().places == layout.places && recorded_with_ == device.buffers_made();
    };
    std::vector<VkCommandBuffer> feeds, commands;
    for (size_t run = 0; run < runs; ++run) feeds.push_back(inputs_.commands(run));
    const VkCommandBuffer end = inputs_.end(choice_->chosen(), choice_->shown());
    size_t run = 0;
    while (run < runs && (run == 0 || serves(run))) {
      inputs_.write(run, 0, tables_.bytes().data());
      for (size_t i = 0; i < info_.takes.size(); ++i)
        inputs_.write(run, i + 1, method_.tensor(info_.takes[i]).data);
      if (choice_->past().size > 0)
        inputs_.write(run, info_.takes.size() + 1, choice_->past_bytes());
      commands.insert(commands.end(), {feeds[run], commands_});
      ++run;
      if (std::has_single_bit(run) && run < runs) {
        device.begin(commands, name.c_str());
        commands.clear();
      }
    }
    commands.push_back(end);
    device.submit(commands, name.c_str());
    return run;
  }

  // The tables and the method's inputs are brought to their places before each run; the tokens of
  // the later ones are chosen by those before.
  void feed_inputs() {
    std::vector<RunInputs::Target> targets{{tables_.all(), false}};
    for (const uint32_t id : info_.takes) targets.push_back({crossing(*taken_, id), is_tokens(id)});
    if (choice_->past().size > 0) targets.push_back({choice_->past(), true});
    inputs_.set_targets(std::move(targets));
    recorded_with_ = executor_.device_.buffers_made();
  }

  HostTables::Key choice_key() const { return {this, nullptr, nullptr, 0}; }

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

  void note_times(Profile& profile) const {
    const std::vector<Recorder::Timing> timings = recorder_.timings();
    for (size_t i = 0; i < steps_.size(); ++i) {
      double seconds = 0;
      for (size_t n = step_times_[i]; n < std::min(step_times_[i + 1], timings.size()); ++n)
        seconds += timings[n].seconds;
      std::vector<std::reference_wrapper<const NodeCall>> calls;
      for (const NodeCall* call : steps_[i].nodes) calls.emplace_back(*call);
      profile.add_together(calls, seconds);
    }
  }

  void load(const WeightEntry& weight) {
    executor_.weights_.of(weight.codes, weight.codes_size);
    if (weight.scales_size > 0) executor_.weights_.of(weight.scales, weight.scales_size);
  }

  // Values that come from the host or go to it have places that both see, with their sizes of this
  // call. Inputs of the method are used there.
  void make_crossings(const std::vector<uint32_t>& values, std::unique_ptr<Buffer>& buffer,
                      Where where) {
    uint64_t bytes = 0;
    for (const uint32_t id : values) {
      offsets_[id] = bytes;
      bytes += round_up(bytes_of(method_.tensor(id)), kOffsetStep);
    }
    if (!buffer || buffer->size() < bytes)
      buffer = std::make_unique<Buffer>(executor_.device_, bytes, where);
  }

  Place crossing(const Buffer& buffer, uint32_t id) {
    return {buffer.handle(), offsets_.at(id), bytes_of(method_.tensor(id))};
  }

  void record() {
    is_timed_ = tells_times() || executor_.profile_;
    recorder_.set_timed(is_timed_);
    const bool in_turns = takes_turns();
    executor_.need_arena(arena_bytes());
    uint64_t needed = 0;
    for (const FusedStep& fused : steps_) {
      const uint64_t bytes = round_up(fused.step->scratch(*this), kOffsetStep);
      needed = in_turns ? needed + bytes : std::max(needed, bytes);
    }
    if (needed > 0 && (!executor_.scratch_ || executor_.scratch_->size() < needed))
      executor_.scratch_ = std::make_unique<Buffer>(executor_.device_, needed, Where::device);
    if (in_turns && !turns_) turns_ = std::make_unique<Turns>(executor_.device_);
    recorder_.set_turns(in_turns ? turns_.get() : nullptr);
    std::vector<Place> awaited;
    const uint64_t arena = round_up(arena_bytes(), 4);
    if (in_turns && arena > 0) awaited.push_back({executor_.arena_->handle(), 0, arena});
    if (in_turns && needed > 0) awaited.push_back({executor_.scratch_->handle(), 0, needed});
    recorder_.begin(awaited);
    scratch_at_ = 0;
    for (const uint32_t id : info_.takes) {
      if (!is_input(method_.tensor(id)))
        recorder_.copy(crossing(*taken_, id), place(method_.tensor(id)));
    }
    step_times_.clear();
    for (const FusedStep& fused : steps_) {
      step_times_.push_back(recorder_.timing_count());
      fused.step->record(*this);
      if (in_turns) scratch_at_ += round_up(fused.step->scratch(*this), kOffsetStep);
    }
    step_times_.push_back(recorder_.timing_count());
    if (chooses_) {
      record_choice();
    } else {
      for (const uint32_t id : info_.gives)
        recorder_.copy(place(method_.tensor(id)), crossing(*given_, id));
    }
    commands_ = recorder_.finish(method_.method().name.c_str(), !chooses_);
    recorded_with_ = executor_.device_.buffers_made();
    executor_.pipelines_.keep();
  }

  void record_choice() {
    const auto tokens = std::find_if(info_.takes.begin(), info_.takes.end(),
                                     [&](uint32_t id) { return is_tokens(id); });
    const Tensor& logits = method_.tensor(info_.gives[0]);
    choice_->record(
        recorder_, place(logits), static_cast<uint32_t>(logits.elements() / logits.last()),
        tables_.place(*tables_.find(kChoice, choice_key())), crossing(*taken_, *tokens));
  }

  // Where a value of the arena lies there.
  uint64_t offset(const Tensor& t) const {
    if (places_.bytes() == 0) return t.info->location;
    return places_.offset(id_of(t));
  }

  // What of the arena is used with the sizes of this call. It is far less than the most where
  // logits of all tokens could be asked for, and those of the last one are.
  uint64_t arena_bytes() const {
    uint64_t end = 0;
    const auto see = [&](const Tensor* t) {
      if (t && t->info->storage == Storage::arena) end = std::max(end, offset(*t) + bytes_of(*t));
    };
    for (size_t n = info_.first; n < info_.last; ++n) {
      const NodeCall& call = method_.calls()[n];
      see(call.output);
      std::ranges::for_each(call.inputs, see);
    }
    return end;
  }

  uint32_t id_of(const Tensor& t) const {
    return static_cast<uint32_t>(&t - method_.tensors().data());
  }

  Place place(const Tensor& t) override {
    switch (t.info->storage) {
      case Storage::input:
        return crossing(*taken_, id_of(t));
      case Storage::weight:
        return bytes_of_file(t.weight->codes, t.weight->codes_size);
      case Storage::state:
        if (t.paged) return state(t).place();
        return {state(t).place().buffer, 0, bytes_of(t)};
      default:
        return {executor_.arena_->handle(), offset(t), bytes_of(t)};
    }
  }

  Place bytes_of_file(const uint8_t* bytes, uint64_t size) override {
    return executor_.weights_.of(bytes, size);
  }

  Place scratch(uint64_t bytes) override {
    return {executor_.scratch_->handle(), scratch_at_, bytes};
  }

  DeviceState& state(const Tensor& t) override { return *executor_.states_[t.info->location]; }

  VulkanExecutor& executor_;
  BoundMethod& method_;
  PartInfo info_;
  Recorder recorder_;
  HostTables tables_;
  std::vector<FusedStep> steps_;
  bool is_of_one_token_;
  Places places_;
  uint64_t scratch_at_ = 0;               // where that of the step being recorded begins
  std::map<uint32_t, uint64_t> offsets_;  // of values that cross
  std::unique_ptr<Buffer> taken_, given_;
  VkCommandBuffer commands_ = nullptr;  // null: to be recorded
  uint64_t recorded_with_ = 0;          // how many buffers there had been
  bool is_timed_ = false;
  std::vector<size_t> step_times_;  // how many timings there were before each step, and in all
  // Of chains: the commands choose tokens and leave the logits where they are.
  bool chooses_ = false;
  std::unique_ptr<Choice> choice_;
  RunInputs inputs_;
  std::unique_ptr<Turns> turns_;  // null: none were taken yet
};

VulkanExecutor::VulkanExecutor(size_t device, std::string cache_folder, int64_t most_layers)
    : device_(find_device(device)),
      pipelines_(device_, std::move(cache_folder)),
      transfers_(device_),
      weights_(device_, transfers_),
      most_layers_(most_layers),
      takes_turns_(can_take_turns(device_, pipelines_)) {
  if (device > 0) name_ += ":" + std::to_string(device);
}

VulkanExecutor::~VulkanExecutor() {
  // Who may still be at work may still read the file, so it stays mapped.
  if (device_.is_abandoned() && program_)
    new std::shared_ptr<const MappedFile>(program_->file().mapping());
}

void VulkanExecutor::look_at(const BoundMethod& method) {
  if (most_layers_ != INT64_MAX) find_layers_beyond(method);
  find_numbers(method);
}

// The order of a line names its elements and no others, and so does a part of it.
void VulkanExecutor::find_numbers(const BoundMethod& method) {
  for (const NodeCall& call : method.calls()) {
    const std::string op = call.info->op->name;
    if (op == "argsort") {
      const int64_t size = call.in(0).info->shape[static_cast<size_t>(call.params.integer[0])];
      if (size >= 0) below_[call.output] = size;
    } else if (op == "slice" || op == "reshape" || op == "transpose") {
      if (const auto found = below_.find(call.in(0).source); found != below_.end())
        below_[call.output] = found->second;
    }
  }
}

// Nodes without a layer's weights belong to the layer before them, and what comes behind the last
// layer to nobody who has not all of them.
void VulkanExecutor::find_layers_beyond(const BoundMethod& method) {
  int64_t layer = -1;
  bool is_beyond = false;
  for (const NodeCall& call : method.calls()) {
    for (const Tensor* t : call.inputs) {
      if (t && t->weight) layer = std::max(layer, layer_of(t->weight->name));
    }
    is_beyond = is_beyond || layer >= most_layers_;
    if (is_beyond) beyond_.insert(&call);
  }
}

std::string VulkanExecutor::refuses(const NodeCall& call) const {
  if (beyond_.contains(&call)) {
    return "of a layer beyond the first " + std::to_string(most_layers_) + ", which are the GPU's";
  }
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
  if (op->entries && !is_known_to_host(*call.inputs.back())) {
    const auto found = below_.find(call.inputs.back()->source);
    if (found == below_.end() || found->second > op->entries(call))
      return "the GPU takes computed numbers of entries only where they are an order";
  }
  return op->refuses(call, device_.info());
}

void VulkanExecutor::open(std::shared_ptr<const Program> program, uint64_t) {
  if (program_) throw ExecutionError("the executor " + name_ + " serves another instance already");
  program_ = std::move(program);
  states_.assign(program_->states().size(), nullptr);
  const ProgramFile& file = program_->file();
  const SectionRecord& weights = file.section(SectionKind::weights);
  constexpr uint64_t page = 4096;  // at least: the rest of the last one is mapped with it
  weights_.open(file.bytes(weights), round_up(file.mapped().size(), page) - weights.offset);
}

void VulkanExecutor::need_arena(uint64_t bytes) {
  if (arena_ && bytes <= arena_->size()) return;
  device_.count_buffer();  // whatever comes of it, commands recorded so far name one that is gone
  arena_.reset();          // nothing in it outlives a run
  arena_ = std::make_unique<Buffer>(device_, bytes, Where::device);
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
