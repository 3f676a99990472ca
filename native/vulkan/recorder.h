// Writes dispatches into a command buffer of its own, which can then be run any number of times.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "buffer.h"
#include "pipelines.h"
#include "turns.h"

namespace satchel::vulkan {

// What a shader sees of a buffer: it begins at an offset that all devices take, and what is meant
// begins `first` words behind that.
struct View {
  VkBuffer buffer = nullptr;
  uint64_t offset = 0, range = 0;
  uint32_t first = 0;
  bool is_written = false;
  bool is_awaited = false;  // its values are looked for until they are there (turns.h)
};
inline View written(View view) {
  view.is_written = true;
  return view;
}
inline View awaited(View view) {
  view.is_awaited = true;
  return view;
}

struct Groups {
  uint32_t x, y = 1;
};
// For so many threads in workgroups of `size`, in two dimensions where one is too short.
Groups groups_for(uint64_t threads, uint32_t size);
inline constexpr uint32_t kMostGroups = 65535;  // in each dimension, on every device

class Recorder {
 public:
  Recorder(const Device& device, Pipelines& pipelines);
  ~Recorder();
  Recorder(const Recorder&) = delete;

  // Bytes of a place. Throws ExecutionError if they are more than a shader can see.
  View view(const Place& place) const;

  // What was recorded before is gone. The commands may be submitted again before they are done.
  // First the bytes of places whose values will be awaited are made to hold none; nobody may be at
  // work on them when the commands begin.
  void begin(std::span<const Place> awaited = {});
  // `push` are the shader's push constants. It waits for what was recorded before where that
  // touches the same bytes, and only there.
  template <typename Push>
  void dispatch(const char* shader, const Constants& constants, std::initializer_list<View> views,
                const Push& push, Groups groups) {
    static_assert(sizeof(Push) <= kPushBytes);
    dispatch(shader, constants, views, &push, sizeof push, groups);
  }
  void copy(const Place& from, const Place& to);
  // From the next begin() on, shaders that can wait for one another's values do so, and commands
  // have barriers only around the others. Null: they have barriers between all.
  void set_turns(Turns* turns) { turns_ = turns; }
  VkCommandBuffer finish(const char* what, bool for_host = true);

  // From the next begin() on dispatches are timed, one after the other.
  void set_timed(bool timed) { is_timed_ = timed; }
  struct Timing {
    std::string shader;  // with the number of its workgroups
    double seconds;
  };
  // Of the commands' last run, if they were timed; and how many have been recorded so far.
  std::vector<Timing> timings() const;
  size_t timing_count() const { return timed_.empty() ? 0 : timed_.size() - 1; }

 private:
  struct Use {
    VkBuffer buffer;
    uint64_t begin, end;
    bool is_written, is_awaited;
    bool is_in_turn = false;
  };

  void dispatch(const char* shader, const Constants& constants, std::initializer_list<View> views,
                const void* push, uint32_t push_bytes, Groups groups);
  bool touches_earlier(std::span<const Use> uses) const;
  void wait_for(std::span<const Use> uses);
  void place_barrier();
  VkDescriptorSet take_set();

  const Device& device_;
  Pipelines& pipelines_;
  VkCommandPool pool_ = nullptr;
  VkCommandBuffer commands_ = nullptr;
  std::vector<VkDescriptorPool> pools_;
  size_t sets_used_ = 0;
  void write_time(std::string shader);

  std::vector<Use> uses_;  // since the last barrier
  Turns* turns_ = nullptr;
  bool is_timed_ = false;
  VkQueryPool times_ = nullptr;
  std::vector<std::string> timed_;  // the shaders between two times
};

}  // namespace satchel::vulkan
