#include "memory.h"

#include <utility>

#include "errors.h"

namespace satchel {

void MappedFile::require_intact() const {
  if (watched_.intact()) return;
  throw FormatError("file", 0, path_ + " was cut short or could not be read while it was in use",
                    "Copy or export it again, and load it anew.");
}

ZeroedPages::ZeroedPages(ZeroedPages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

ZeroedPages& ZeroedPages::operator=(ZeroedPages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace satchel
