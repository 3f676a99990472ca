// Handles of the C API.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "status.h"

namespace satchel::capi {

// Shared by all kinds, so that none is taken for another.
inline std::atomic<uintptr_t> last_number{0};

// The objects behind handles. A handle is a number that is never used again, so
// that one that was closed is known to be so; an object lives on until the
// calls that use it are done.
template <typename T>
class Handles {
 public:
  void* add(std::shared_ptr<T> object) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uintptr_t number = last_number += 16;
    objects_.emplace(number, std::move(object));
    return reinterpret_cast<void*>(number);
  }
  std::shared_ptr<T> find(const void* handle, const char* kind) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == objects_.end()) throw Misuse(std::string("this is not (or no longer) a ") + kind);
    return found->second;
  }
  void remove(const void* handle) noexcept {
    std::shared_ptr<T> object;  // ends outside of the lock
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
      if (found == objects_.end()) return;
      object = std::move(found->second);
      objects_.erase(found);
    } catch (...) {  // a mutex that cannot be locked: nothing to be done
    }
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, std::shared_ptr<T>> objects_;
};

// Those of a kind. Never destroyed: other threads may still call while a process ends.
template <typename T>
Handles<T>& handles() {
  static auto* all = new Handles<T>;
  return *all;
}

}  // namespace satchel::capi
