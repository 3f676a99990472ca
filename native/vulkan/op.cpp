#include "op.h"

#include <cstring>
#include <string>
#include <utility>

#include "../runtime/errors.h"

namespace satchel::vulkan {

namespace {

template <typename Take>
void each_op(Take take) {
  for (const auto ops : {matrix_ops(), cache_ops(), row_ops(), element_ops(), entry_ops(),
                         image_ops(), code_ops(), attention_ops()}) {
    for (const VulkanOp& op : ops) take(op);
  }
}

}  // namespace

const VulkanOp* find_op(const std::string& name) {
  const VulkanOp* found = nullptr;
  each_op([&](const VulkanOp& op) {
    if (name == op.name) found = &op;
  });
  return found;
}

std::vector<std::string> names_of_ops() {
  std::vector<std::string> names;
  each_op([&](const VulkanOp& op) { names.push_back(op.name); });
  return names;
}

void check_entries(const Tensor& numbers, int64_t have, const char* what) {
  if (!is_known_to_host(numbers)) return;
  for (int64_t i = 0; i < numbers.elements(); ++i) {
    const int32_t number = numbers.i32()[i];
    if (number < 0 || number >= have) {
      throw ExecutionError(std::string("there is no ") + what + " " + std::to_string(number) +
                           " among " + std::to_string(have));
    }
  }
}

const HostTables::Entry* HostTables::find(const char* kind, const Key& key) const {
  const auto found = slots_.find({kind, key});
  return found == slots_.end() || !found->second.is_filled ? nullptr : &found->second.entry;
}

const HostTables::Entry& HostTables::add(const char* kind, const Key& key, const void* data,
                                         uint64_t bytes, int64_t most, uint64_t shape) {
  const auto [found, is_new] = slots_.try_emplace({kind, key});
  Slot& slot = found->second;
  if (is_new || slot.entry.room < bytes) {
    slot.entry.offset = round_up(bytes_.size(), kOffsetStep);
    slot.entry.room = round_up(2 * bytes, kOffsetStep);
    bytes_.resize(slot.entry.offset + slot.entry.room);
    ++layout_.places;
    is_moved_ = true;
  }
  if (!is_new && slot.entry.shape != shape) {
    ++layout_.shapes;
    is_moved_ = true;
  }
  slot.entry.size = bytes;
  slot.entry.most = most;
  slot.entry.shape = shape;
  slot.is_filled = true;
  if (bytes > 0) std::memcpy(bytes_.data() + slot.entry.offset, data, bytes);
  return slot.entry;
}

void HostTables::clear() {
  for (auto& [key, slot] : slots_) slot.is_filled = false;
}

bool HostTables::publish() {
  if (!buffer_ || buffer_->size() < bytes_.size()) {
    buffer_ = std::make_unique<Buffer>(device_, bytes_.size(), Where::upload);
    is_moved_ = true;
  }
  if (!bytes_.empty()) std::memcpy(buffer_->data(), bytes_.data(), bytes_.size());
  return !std::exchange(is_moved_, false);
}

Place HostTables::place(const Entry& entry) const {
  return {buffer_->handle(), entry.offset, entry.room};
}

}  // namespace satchel::vulkan
