#include "op.h"

#include <cstring>

namespace satchel::vulkan {

namespace {

template <typename Take>
void each_op(Take take) {
  for (const auto ops : {matrix_ops(), cache_ops(), row_ops(), element_ops()}) {
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

const HostTables::Entry* HostTables::find(const char* kind, const Key& key) const {
  const auto found = entries_.find({kind, key});
  return found == entries_.end() ? nullptr : &found->second;
}

const HostTables::Entry& HostTables::add(const char* kind, const Key& key, const void* data,
                                         uint64_t bytes, int64_t most) {
  const uint64_t offset = round_up(bytes_.size(), kOffsetStep);
  bytes_.resize(offset + bytes);
  if (bytes > 0) std::memcpy(bytes_.data() + offset, data, bytes);
  return entries_[{kind, key}] = {offset, bytes, most};
}

void HostTables::clear() {
  entries_.clear();
  bytes_.clear();
}

void HostTables::publish(const Device& device) {
  if (!buffer_ || buffer_->size() < bytes_.size())
    buffer_ = std::make_unique<Buffer>(device, 2 * bytes_.size(), Where::host);
  if (!bytes_.empty()) std::memcpy(buffer_->data(), bytes_.data(), bytes_.size());
}

Place HostTables::place(const Entry& entry) const {
  return {buffer_->handle(), entry.offset, entry.size};
}

}  // namespace satchel::vulkan
