// In a build with -fsanitize=address, a node may touch nothing but its own values: while it runs,
// the rest of the arena, of the states, of the weights and of the scratch is poisoned.
// In other builds a guard is nothing.
#pragma once

#include <cstddef>
#include <vector>

#include "op.h"

#if defined(__SANITIZE_ADDRESS__)
#define SATCHEL_GUARD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SATCHEL_GUARD 1
#endif
#endif

#ifdef SATCHEL_GUARD
#include <sanitizer/asan_interface.h>

#include <mutex>
#endif

namespace satchel {

struct Region {
  const uint8_t* data;
  size_t size;
};

#ifdef SATCHEL_GUARD

class NodeGuard {
 public:
  // The first region is the scratch.
  NodeGuard(const std::vector<Region>& regions, const NodeCall& call)
      : lock_(mutex()), regions_(regions) {
    for (const Region& r : regions_) {
      if (r.size <= kLargest) ASAN_POISON_MEMORY_REGION(r.data, r.size);
    }
    for (size_t i = 0; i <= call.joined; ++i) {
      allow(regions_[0].data, (&call)[i].scratch);
      for (const Tensor* t : (&call)[i].inputs) allow(t);
      allow((&call)[i].output);
    }
  }

  ~NodeGuard() {
    for (const Region& r : regions_) allow(r.data, r.size);
  }

 private:
  static constexpr size_t kLargest = size_t{16}
                                     << 20;  // poisoning costs time and memory of its own

  // Instances share their weights, so nodes run one at a time here.
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }

  static void allow(const Tensor* t) {
    if (!t || t->paged) return;  // whose pages are too much to be poisoned
    if (t->weight && t->weight->is_matrix()) {
      allow(t->weight->codes, t->weight->codes_size);
      allow(t->weight->scales, t->weight->scales_size);
    } else {
      allow(t->data, static_cast<size_t>(t->elements()) * dtype_size(t->dtype));
    }
  }

  static void allow(const uint8_t* data, size_t size) {
    if (data && size <= kLargest) ASAN_UNPOISON_MEMORY_REGION(data, size);
  }

  std::lock_guard<std::mutex> lock_;
  const std::vector<Region>& regions_;
};

#else

struct NodeGuard {
  NodeGuard(const std::vector<Region>&, const NodeCall&) {}
  ~NodeGuard() {}
};

#endif

}  // namespace satchel
