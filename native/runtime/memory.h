// Memory from the system: files mapped read-only, and zeroed pages that cost nothing until used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mapping_faults.h"

namespace satchel {

// A file in memory, from an address on where a huge page could lie, and with the last one's room
// behind it: so that all of its bytes can be moved into huge pages (huge_pages.h).
class MappedFile {
 public:
  static constexpr uint64_t kHugePage = uint64_t{2} << 20;

  // Throws FormatError when the file cannot be opened or is empty.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  // Bytes of address space that are its own, at least `size`.
  uint64_t room() const { return room_; }
  int descriptor() const { return descriptor_; }  // open for reading; -1 on Windows
  // Throws FormatError if bytes were missing when they were read: somebody has cut the file short.
  void require_intact() const;

 private:
  const uint8_t* data_ = nullptr;
  uint64_t size_ = 0, room_ = 0;
  int descriptor_ = -1;
  std::string path_;
  WatchedMapping watched_;
};

// Bytes of memory that the machine has.
uint64_t physical_memory();

class ZeroedPages {
 public:
  ZeroedPages() = default;
  explicit ZeroedPages(size_t size);  // throws ExecutionError when the system has none
  ~ZeroedPages();
  ZeroedPages(ZeroedPages&& other) noexcept;
  ZeroedPages& operator=(ZeroedPages&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace satchel
