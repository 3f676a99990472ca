// A mapped file that somebody cuts short leaves pages without bytes, and reading one is SIGBUS,
// which would end the process without a word. Here such a page is replaced by one of zeros, so that
// the call that reads it comes to its end, and the mapping is marked: its owner then says what
// happened.
#pragma once

#include <atomic>
#include <cstdint>

namespace satchel {

class WatchedMapping {
 public:
  WatchedMapping() = default;
  ~WatchedMapping() { stop(); }
  WatchedMapping(const WatchedMapping&) = delete;
  WatchedMapping& operator=(const WatchedMapping&) = delete;

  // Where the system has no such faults, or too many files are open, nothing is watched.
  void watch(const uint8_t* data, uint64_t size);
  void stop();  // before it is unmapped

  // Whether all pages that were read had their bytes.
  bool intact() const;

 private:
  int slot_ = -1;
};

}  // namespace satchel
