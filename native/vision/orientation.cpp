#include "orientation.h"

#include <algorithm>
#include <string_view>

namespace satchel::vision {

namespace {

constexpr uint32_t kOrientationTag = 0x0112;

// Numbers of a TIFF block, in its byte order; those that lie outside of it are 0.
class Tiff {
 public:
  explicit Tiff(Bytes block) : block_(block), little_(block[0] == 'I') {}

  uint32_t number(size_t offset, size_t bytes) const {
    if (offset > block_.size() || block_.size() - offset < bytes) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i)
      value = value << 8 | block_[offset + (little_ ? bytes - 1 - i : i)];
    return value;
  }

 private:
  Bytes block_;
  bool little_;
};

}  // namespace

int exif_orientation(Bytes block) {
  static constexpr std::string_view kHead("Exif\0\0", 6);
  if (block.size() >= kHead.size() && std::equal(kHead.begin(), kHead.end(), block.begin()))
    block = block.subspan(kHead.size());
  if (block.size() < 8 || (block[0] != 'I' && block[0] != 'M') || block[0] != block[1]) return 0;
  const Tiff tiff(block);
  if (tiff.number(2, 2) != 42) return 0;
  const size_t table = tiff.number(4, 4);
  const uint32_t entries = tiff.number(table, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = table + 2 + size_t{12} * i;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const uint32_t type = tiff.number(entry + 2, 2);
    const size_t bytes = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;
    if (bytes == 0 || tiff.number(entry + 4, 4) != 1) return 0;
    const uint32_t value = tiff.number(entry + 8, bytes);
    return value <= 8 ? static_cast<int>(value) : 0;
  }
  return 0;
}

int xmp_orientation(Bytes packet) {
  const std::string_view text(reinterpret_cast<const char*>(packet.data()), packet.size());
  static constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = 0; (at = text.find(kName, at)) != std::string_view::npos; ++at) {
    std::string_view rest = text.substr(at + kName.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9')
      return rest[0] <= '8' ? rest[0] - '0' : 0;
  }
  return 0;
}

}  // namespace satchel::vision
