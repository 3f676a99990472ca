// Memory whose last byte is the last one before a page that may not be touched: a kernel that
// reads or writes past a buffer is stopped by the system.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <vector>

template <class T>
class Guarded {
 public:
  explicit Guarded(size_t count, int fill = 0xff) : count_(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = count * sizeof(T), used = (bytes + page - 1) / page * page;
    mapped_ = used + page;
    memory_ = static_cast<char*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED || mprotect(memory_ + used, page, PROT_NONE) != 0) {
      throw std::bad_alloc();
    }
    data_ = reinterpret_cast<T*>(memory_ + used - bytes);
    std::memset(static_cast<void*>(data_), fill, bytes);
  }
  explicit Guarded(const std::vector<T>& values) : Guarded(values.size()) {
    if (count_ != 0) std::memcpy(data_, values.data(), count_ * sizeof(T));
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(memory_, mapped_); }

  T* get() { return data_; }
  const T* get() const { return data_; }
  size_t size() const { return count_; }
  bool same_bits(const Guarded& other) const {
    return count_ == other.count_ && std::memcmp(data_, other.data_, count_ * sizeof(T)) == 0;
  }

 private:
  size_t count_, mapped_ = 0;
  char* memory_ = nullptr;
  T* data_ = nullptr;
};
