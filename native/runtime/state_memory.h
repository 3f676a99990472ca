// Memory that a state lies in, of the executor that owns the state.
#pragma once

#include <cstdint>
#include <cstring>

#include "memory.h"

namespace satchel {

class StateMemory {
 public:
  virtual ~StateMemory() = default;
  // It is zero at first. Called between the owner's pieces of work, never during one.
  virtual void read(uint64_t offset, uint64_t bytes, uint8_t* to) const = 0;
  virtual void write(uint64_t offset, uint64_t bytes, const uint8_t* from) = 0;
  virtual void copy(uint64_t from, uint64_t to, uint64_t bytes) = 0;  // which do not overlap
  virtual void clear() = 0;
};

class HostMemory : public StateMemory {
 public:
  explicit HostMemory(uint64_t bytes) : pages_(bytes) {}
  uint8_t* data() const { return pages_.data(); }
  uint64_t size() const { return pages_.size(); }

  void read(uint64_t offset, uint64_t bytes, uint8_t* to) const override {
    std::memcpy(to, data() + offset, bytes);
  }
  void write(uint64_t offset, uint64_t bytes, const uint8_t* from) override {
    std::memcpy(data() + offset, from, bytes);
  }
  void copy(uint64_t from, uint64_t to, uint64_t bytes) override {
    std::memcpy(data() + to, data() + from, bytes);
  }
  void clear() override { std::memset(data(), 0, size()); }

 private:
  ZeroedPages pages_;
};

}  // namespace satchel
