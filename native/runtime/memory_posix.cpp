// Memory from the system, where that is a POSIX one; memory_windows.cpp is the other.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "errors.h"
#include "memory.h"

namespace satchel {

namespace {

// `size` bytes of address space that nothing else uses, in whole huge pages; null if there are
// none.
uint8_t* reserve_huge_pages(uint64_t size) {
  constexpr uint64_t kPage = MappedFile::kHugePage;
  void* address =
      ::mmap(nullptr, size + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  auto* begin = static_cast<uint8_t*>(address);
  const uint64_t before = -reinterpret_cast<uintptr_t>(begin) % kPage;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + size, kPage - before);
  return begin + before;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    throw FormatError("file", 0, "cannot open " + path + ": " + std::strerror(errno),
                      "Check the path.");
  }
  struct stat info{};
  const bool regular = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  if (!regular || info.st_size == 0) {
    ::close(file);
    throw FormatError("file", 0, path + (regular ? " is empty" : " is not a regular file"),
                      "Give a program, as satchel export writes it.");
  }
  size_ = static_cast<uint64_t>(info.st_size);
  room_ = (size_ + kHugePage - 1) / kHugePage * kHugePage;
  uint8_t* place = reserve_huge_pages(room_);
  if (!place) room_ = size_;
  void* address = ::mmap(place, size_, PROT_READ, MAP_SHARED | (place ? MAP_FIXED : 0), file, 0);
  if (address == MAP_FAILED) {
    if (place) ::munmap(place, room_);
    ::close(file);
    throw FormatError("file", 0, "cannot map " + path + ": " + std::strerror(errno),
                      "Is there enough address space?");
  }
  data_ = static_cast<const uint8_t*>(address);
  descriptor_ = file;
  watched_.watch(data_, size_);
}

MappedFile::~MappedFile() {
  watched_.stop();
  ::munmap(const_cast<uint8_t*>(data_), room_);
  ::close(descriptor_);
}

uint64_t physical_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page)
                               : UINT64_MAX;
}

ZeroedPages::ZeroedPages(size_t size) : size_(size) {
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw ExecutionError("the system has no " + std::to_string(size) + " bytes of memory to give");
  }
  data_ = static_cast<uint8_t*>(address);
}

ZeroedPages::~ZeroedPages() {
  if (data_) ::munmap(data_, size_);
}

}  // namespace satchel
