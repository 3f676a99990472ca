#include "huge_pages.h"

#if defined(__linux__)

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>

#include "process.h"

namespace satchel {

namespace {

constexpr uint64_t kHugePage = MappedFile::kHugePage;
constexpr uint64_t kChunk = 2 * kHugePage;  // moved at a time

bool switched_off() {
  const char* value = std::getenv("SATCHEL_HUGE_PAGES");
  return value && std::string(value) == "0";
}

// What one of the system's small files says; empty if it is not there. Not by streams, which would
// make a static binary a third larger.
std::string contents(const std::string& path) {
  std::string text;
  if (std::FILE* file = std::fopen(path.c_str(), "r")) {
    char block[4096];
    for (size_t count; (count = std::fread(block, 1, sizeof block, file)) > 0;)
      text.append(block, count);
    std::fclose(file);
  }
  return text;
}

bool system_has_them() {
  const std::string text = contents("/sys/kernel/mm/transparent_hugepage/enabled");
  return !text.empty() && text.find("[never]") == std::string::npos;
}

// The least that this process and the groups of processes around it are limited to.
uint64_t group_limit() {
  uint64_t least = UINT64_MAX;
  const std::string groups = contents("/proc/self/cgroup");
  for (size_t at = 0; at < groups.size();) {
    const size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string line = groups.substr(at, end - at);
    at = end + 1;
    if (line.rfind("0::/", 0) != 0) continue;
    for (std::string path = line.substr(3);; path.resize(path.rfind('/'))) {
      // The file may also say "max".
      const std::string limit = contents("/sys/fs/cgroup" + path + "/memory.max");
      if (!limit.empty() && limit[0] >= '0' && limit[0] <= '9')
        least = std::min<uint64_t>(least, std::strtoull(limit.c_str(), nullptr, 10));
      if (path.empty()) break;
    }
  }
  return least;
}

// Bytes that can be had without pushing others out.
uint64_t available_memory() {
  const std::string info = contents("/proc/meminfo"), name = "MemAvailable:";
  const size_t at = info.find(name);
  if (at == std::string::npos) return 0;
  const uint64_t kilobytes = std::strtoull(info.c_str() + at + name.size(), nullptr, 10);
  return std::min<uint64_t>(kilobytes << 10, group_limit());
}

// Reads the whole range, as far as the file goes, or says that it cannot.
bool read_all(const MappedFile& file, uint64_t offset, uint8_t* out, uint64_t size) {
  size = std::min(size, file.size() - offset);
  while (size > 0) {
    const ssize_t got = ::pread(file.descriptor(), out, size, static_cast<off_t>(offset));
    if (got <= 0) return false;
    out += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
  return true;
}

// `offset` and `size` are whole huge pages. The copy takes the mapping's place in one call of the
// system, so that no reader ever sees anything but the file's bytes.
void move_chunk(const MappedFile& file, uint64_t offset, uint64_t size) {
  uint8_t* target = const_cast<uint8_t*>(file.data()) + offset;
  const uint64_t space = size + kHugePage;
  void* address = ::mmap(nullptr, space, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return;
  auto* begin = static_cast<uint8_t*>(address);
  const uint64_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  uint8_t* copy = begin + before;
  const bool ready = ::madvise(copy, size, MADV_HUGEPAGE) == 0 &&
                     read_all(file, offset, copy, size) && ::mprotect(copy, size, PROT_READ) == 0;
  if (!ready || ::mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, target) == MAP_FAILED) {
    ::munmap(begin, space);
    return;
  }
  if (before > 0) ::munmap(begin, before);
  ::munmap(copy + size, kHugePage - before);
}

}  // namespace

HugePageMover::~HugePageMover() {
  stop_.store(true);
  if (!thread_.joinable()) return;
  if (process_ == this_process()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void HugePageMover::start(const MappedFile& file, uint64_t offset, uint64_t size) {
  const uint64_t begin = offset / kHugePage * kHugePage;
  const uint64_t end = (offset + size + kHugePage - 1) / kHugePage * kHugePage;
  if (size < kHugePage || end > file.room() || switched_off() || !system_has_them()) return;
  if (available_memory() / 2 < size) return;
  const auto move = [=, this, &file] {
    for (uint64_t at = begin; at < end && !stop_.load(); at += kChunk) {
      move_chunk(file, at, std::min(kChunk, end - at));
    }
  };
  try {
    process_ = this_process();
    thread_ = std::thread(move);
  } catch (const std::system_error&) {  // no more threads: small pages do as well, only slower
  }
}

}  // namespace satchel

#else

namespace satchel {

HugePageMover::~HugePageMover() = default;
void HugePageMover::start(const MappedFile&, uint64_t, uint64_t) {}

}  // namespace satchel

#endif
