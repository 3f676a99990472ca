// Memory of large results, used again: a step's logits are many megabytes, and memory that is new
// to the process is cleared by the system, page by page, before it can be written.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace satchel {

class ResultBuffers {
 public:
  struct Buffer {
    explicit Buffer(size_t n) : bytes(new uint8_t[n]), size(n) {}
    std::unique_ptr<uint8_t[]> bytes;
    size_t size;
  };

  struct GiveBack {
    void operator()(Buffer* buffer) const noexcept { give_back(buffer); }
  };
  using Owned = std::unique_ptr<Buffer, GiveBack>;

  // At least so many bytes.
  static Owned take(size_t bytes) {
    if (bytes >= kSmallest) {
      const std::lock_guard<std::mutex> lock(mutex());
      std::vector<std::unique_ptr<Buffer>>& kept = buffers();
      for (auto it = kept.begin(); it != kept.end(); ++it) {
        if ((*it)->size < bytes || (*it)->size / 2 > bytes) continue;
        Owned found(it->release());
        kept.erase(it);
        return found;
      }
    }
    return Owned(new Buffer(bytes));
  }

  static void give_back(void* taken) noexcept {
    std::unique_ptr<Buffer> buffer(static_cast<Buffer*>(taken));
    if (buffer->size < kSmallest || buffer->size > kLargest) return;
    const std::lock_guard<std::mutex> lock(mutex());
    std::vector<std::unique_ptr<Buffer>>& kept = buffers();
    if (kept.size() == kMost) kept.erase(kept.begin());  // the one that was not wanted for longest
    kept.push_back(std::move(buffer));
  }

 private:
  // Smaller ones come from what the process has already.
  static constexpr size_t kSmallest = size_t{128} << 10, kLargest = size_t{32} << 20, kMost = 2;

  static std::mutex& mutex() {
    static std::mutex of_all;
    return of_all;
  }
  // Never destroyed: arrays may outlive the module.
  static std::vector<std::unique_ptr<Buffer>>& buffers() {
    static auto* kept = [] {
      auto* made = new std::vector<std::unique_ptr<Buffer>>;
      made->reserve(kMost);  // giving back must not throw
      return made;
    }();
    return *kept;
  }
};

}  // namespace satchel
