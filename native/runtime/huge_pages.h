// Weights in pages of 2 MB instead of 4 kB. Reading them is all that decoding does, and a mapped
// file's small pages keep the hardware from reading ahead: every page may lie anywhere in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "memory.h"

namespace satchel {

// Puts copies in huge pages in the place of a part of a mapped file, at the same addresses, on a
// thread of its own: the system may take its time to find huge pages. The others read meanwhile.
class HugePageMover {
 public:
  HugePageMover() = default;
  ~HugePageMover();  // stops it; what has been moved stays until it is unmapped
  HugePageMover(const HugePageMover&) = delete;
  HugePageMover& operator=(const HugePageMover&) = delete;

  // `size` bytes of the file from `offset` on, and what lies in the same huge pages. Does what it
  // can: nothing where the system has no huge pages or little memory left, or SATCHEL_HUGE_PAGES
  // is 0.
  void start(const MappedFile& file, uint64_t offset, uint64_t size);

 private:
  std::thread thread_;
  int process_ = 0;  // that the thread is of
  std::atomic<bool> stop_{false};
};

}  // namespace satchel
