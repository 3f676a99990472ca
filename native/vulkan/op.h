// How a device runs an op.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "../runtime/op.h"
#include "../runtime/sequences.h"
#include "recorder.h"

namespace satchel::vulkan {

// What the host has worked out for the nodes of a step: numbers that shaders read. A table stays
// where it is from step to step, so that recorded commands find the new numbers there.
class HostTables {
 public:
  explicit HostTables(const Device& device) : device_(device) {}

  // A table of the caller's, by a key that is the same where the table is. Kinds are literals.
  using Key = std::tuple<const void*, const void*, const void*, int64_t>;
  struct Entry {
    uint64_t offset, size;
    int64_t most = -1;   // the highest page in it
    uint64_t room = 0;   // what it may grow to at this place
    uint64_t shape = 0;  // what commands depend on
  };
  const Entry* find(const char* kind, const Key& key) const;
  const Entry& add(const char* kind, const Key& key, const void* data, uint64_t bytes,
                   int64_t most = -1, uint64_t shape = 0);
  void clear();
  // In memory that the device sees, once all are there. Whether commands that were recorded before
  // still fit.
  bool publish();
  // How often a table got another place, and another shape.
  struct Layout {
    uint64_t places = 0, shapes = 0;
  };
  const Layout& layout() const { return layout_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  Place all() const { return {buffer_->handle(), 0, bytes_.size()}; }
  Place place(const Entry& entry) const;  // with its room

 private:
  struct Slot {
    Entry entry;
    bool is_filled;
  };

  const Device& device_;
  std::map<std::pair<std::string_view, Key>, Slot> slots_;
  std::vector<uint8_t> bytes_;
  std::unique_ptr<Buffer> buffer_;
  Layout layout_;
  bool is_moved_ = true;
};

// A call's surroundings while a part runs: first every node is prepared, by the host, then every
// node is recorded.
class Work {
 public:
  virtual ~Work() = default;
  virtual Place place(const Tensor& t) = 0;  // with its size of this call
  virtual Place bytes_of_file(const uint8_t* bytes, uint64_t size) = 0;  // of weights in use
  virtual Place scratch(uint64_t bytes) = 0;  // while recording: what was asked for
  virtual DeviceState& state(const Tensor& t) = 0;

  View view(const Tensor& t) { return recorder.view(place(t)); }

  const DeviceInfo& device;
  Recorder& recorder;
  HostTables& tables;
  Sequences* sequences = nullptr;

 protected:
  Work(const DeviceInfo& d, Recorder& r, HostTables& t) : device(d), recorder(r), tables(t) {}
};

// Work of a device that is recorded in one go: a node, or several that were fused.
class Step {
 public:
  virtual ~Step() = default;
  virtual void prepare(Work&) {}  // the host's part, before anything is recorded
  virtual uint64_t scratch(Work&) const { return 0; }
  virtual void record(Work& work) = 0;
};

struct VulkanOp {
  const char* name;
  // Why it cannot run a call, whose sizes are the largest; empty if it can. Arrays are already
  // known to be f32 or i32, and to fit a binding.
  std::string (*refuses)(const NodeCall& call, const DeviceInfo& device);
  void (*record)(const NodeCall& call, Work& work);
  // The host's part, before anything is recorded; null: none. Throws ExecutionError for values that
  // are out of range.
  void (*prepare)(const NodeCall& call, Work& work) = nullptr;
  uint64_t (*scratch)(const NodeCall& call, Work& work) = nullptr;  // bytes; null: none
  bool any_type = false;  // whether its arrays may have elements of other sizes
  // How many entries there are that the numbers in its last input name; below 0: a symbol's. Where
  // numbers are computed, only those are taken that cannot name others. Null: no such numbers.
  int64_t (*entries)(const NodeCall& call) = nullptr;
};

const VulkanOp* find_op(const std::string& name);  // null if there is none
std::vector<std::string> names_of_ops();

inline uint32_t word(int64_t number) { return static_cast<uint32_t>(number); }
// Its numbers lie where the caller has them, so that the host can read them before a step.
inline bool is_input(const Tensor& t) { return t.info->storage == Storage::input; }
inline bool is_known_to_host(const Tensor& t) { return is_input(t) || t.weight; }
// Throws where one of the numbers is out of range, as far as the host knows them.
void check_entries(const Tensor& numbers, int64_t have, const char* what);

std::span<const VulkanOp> matrix_ops();
std::span<const VulkanOp> cache_ops();
std::span<const VulkanOp> row_ops();
std::span<const VulkanOp> element_ops();
std::span<const VulkanOp> entry_ops();
std::span<const VulkanOp> image_ops();
std::span<const VulkanOp> code_ops();
std::span<const VulkanOp> attention_ops();

}  // namespace satchel::vulkan
