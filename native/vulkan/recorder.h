// Writes dispatches into a command buffer.
#pragma once

#include <initializer_list>
#include <vector>

#include "buffer.h"
#include "pipelines.h"

namespace satchel::vulkan {

// What a shader sees of a buffer: it begins at an offset that all devices take, and what is meant
// begins `first` words behind that.
struct View {
  VkBuffer buffer = nullptr;
  uint64_t offset = 0, range = 0;
  uint32_t first = 0;
};

struct Groups {
  uint32_t x, y = 1;
};
// For so many threads in workgroups of `size`, in two dimensions where one is too short.
Groups groups_for(uint64_t threads, uint32_t size);
inline constexpr uint32_t kMostGroups = 65535;  // in each dimension, on every device

class Recorder {
 public:
  Recorder(const Device& device, Pipelines& pipelines) : device_(device), pipelines_(pipelines) {}
  ~Recorder();
  Recorder(const Recorder&) = delete;

  // Bytes of a place. Throws ExecutionError if they are more than a shader can see.
  View view(const Place& place) const;

  void begin(VkCommandBuffer commands);
  // Behind all that was recorded before. `push` are the shader's push constants.
  template <typename Push>
  void dispatch(const char* shader, const Constants& constants, std::initializer_list<View> views,
                const Push& push, Groups groups) {
    static_assert(sizeof(Push) <= kPushBytes);
    dispatch(shader, constants, views, &push, sizeof push, groups);
  }
  void copy(const Place& from, const Place& to);

 private:
  void dispatch(const char* shader, const Constants& constants, std::initializer_list<View> views,
                const void* push, uint32_t push_bytes, Groups groups);
  VkDescriptorSet take_set();

  const Device& device_;
  Pipelines& pipelines_;
  VkCommandBuffer commands_ = nullptr;
  std::vector<VkDescriptorPool> pools_;
  size_t sets_used_ = 0;
};

}  // namespace satchel::vulkan
