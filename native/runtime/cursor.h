// Reads one section of a program file, never past its end.
#pragma once

#include <bit>
#include <cstring>
#include <string>

#include "errors.h"
#include "utf8.h"

namespace satchel {

static_assert(std::endian::native == std::endian::little,
              "numbers are read as they lie in the file");

class Cursor {
 public:
  Cursor(std::string section, const uint8_t* data, uint64_t size, uint64_t file_offset)
      : section_(std::move(section)), data_(data), size_(size), file_offset_(file_offset) {}

  uint8_t u8() { return number<uint8_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  int64_t i64() { return number<int64_t>(); }
  double f64() { return number<double>(); }

  // Names and texts end up in messages and on terminals: UTF-8, with no control characters.
  std::string text() {
    const uint16_t length = number<uint16_t>();
    std::string text(reinterpret_cast<const char*>(take(length)), length);
    if (!is_printable_utf8(text)) fail("a text is not UTF-8 or holds control characters");
    return text;
  }

  std::string name(const char* whose) {
    std::string name = text();
    if (name.empty()) fail(std::string(whose) + " has no name");
    return name;
  }

  const uint8_t* take(uint64_t count) {
    if (count > size_ - at_) fail("the section ends too early");
    const uint8_t* bytes = data_ + at_;
    at_ += count;
    return bytes;
  }

  // A number of records that follow; refused if the section is too short to hold them.
  uint32_t count(uint64_t smallest_record) {
    const uint32_t n = u32();
    if (n > (size_ - at_) / smallest_record) {
      fail("it claims " + std::to_string(n) + " entries, more than fit");
    }
    return n;
  }

  void expect_end() {
    if (at_ != size_) fail("there are bytes left over at the end");
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw FormatError(section_, file_offset_ + at_, message);
  }

  [[noreturn]] void fail_as_unknown(const std::string& message) const {
    throw FormatError(section_, file_offset_ + at_, message,
                      "The file needs a newer Satchel: pip install --upgrade satchel.");
  }

 private:
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }

  std::string section_;
  const uint8_t* data_;
  uint64_t size_;
  uint64_t file_offset_;
  uint64_t at_ = 0;
};

}  // namespace satchel
