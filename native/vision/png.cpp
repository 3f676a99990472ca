// PNG: https://www.w3.org/TR/png-3/
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "inflate.h"
#include "orientation.h"

namespace satchel::vision {

namespace {

enum Colour : uint8_t { grey = 0, rgb = 2, palette = 3, grey_alpha = 4, rgb_alpha = 6 };

uint32_t big_endian(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

uint32_t crc(Bytes bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        made[i] = (made[i] & 1) != 0 ? 0xEDB88320u ^ made[i] >> 1 : made[i] >> 1;
    }
    return made;
  }();
  uint32_t sum = 0xFFFFFFFFu;
  for (const uint8_t byte : bytes) sum = table[(sum ^ byte) & 255] ^ sum >> 8;
  return ~sum;
}

struct Header {
  uint32_t width, height;
  int depth;
  Colour colour;
  bool interlaced;

  int channels() const {
    return colour == rgb ? 3 : colour == grey_alpha ? 2 : colour == rgb_alpha ? 4 : 1;
  }
  size_t row_bytes(uint32_t columns) const {
    return (static_cast<size_t>(columns) * static_cast<size_t>(channels() * depth) + 7) / 8;
  }
};

Header read_header(Bytes chunk) {
  if (chunk.size() < 13) throw ImageError("its header is too short");
  const Header header{big_endian(chunk.data()), big_endian(chunk.data() + 4), chunk[8],
                      static_cast<Colour>(chunk[9]), chunk[12] == 1};
  check_size(header.width, header.height);
  const int depth = header.depth;
  const bool small = depth == 1 || depth == 2 || depth == 4;
  bool fits = depth == 8 || depth == 16;
  if (header.colour == grey) fits = fits || small;
  if (header.colour == palette) fits = depth == 8 || small;
  const bool known = chunk[9] == grey || chunk[9] == rgb || chunk[9] == palette ||
                     chunk[9] == grey_alpha || chunk[9] == rgb_alpha;
  if (!fits || !known || chunk[10] != 0 || chunk[11] != 0 || chunk[12] > 1)
    throw ImageError("its header is damaged");
  return header;
}

// Adds to a row what was taken off it before it was compressed.
void unfilter(int filter, std::span<uint8_t> row, std::span<const uint8_t> above, size_t pixel) {
  const auto paeth = [](int a, int b, int c) {
    const int p = a + b - c, pa = std::abs(p - a), pb = std::abs(p - b), pc = std::abs(p - c);
    return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
  };
  for (size_t i = 0; i < row.size(); ++i) {
    const int left = i >= pixel ? row[i - pixel] : 0, up = above[i];
    int add = 0;
    switch (filter) {
      case 0:
        return;
      case 1:
        add = left;
        break;
      case 2:
        add = up;
        break;
      case 3:
        add = (left + up) / 2;
        break;
      case 4:
        add = paeth(left, up, i >= pixel ? above[i - pixel] : 0);
        break;
      default:
        throw ImageError("its rows are damaged");
    }
    row[i] = static_cast<uint8_t>(row[i] + add);
  }
}

// Colours that a damaged picture names and does not have are black.
using Palette = std::array<std::array<uint8_t, 3>, 256>;

// What a picture has besides the alpha of its pixels: that of the palette's colours, or one colour
// that nothing is seen of.
struct Transparency {
  std::array<uint8_t, 256> of_palette;
  std::array<int, 3> nothing{-1, -1, -1};

  Transparency() { of_palette.fill(255); }

  // As Pillow understands the chunk, which compares 8 bits.
  void read(const Header& header, Bytes chunk) {
    if (header.colour == palette) {
      std::copy_n(chunk.begin(), std::min<size_t>(chunk.size(), 256), of_palette.begin());
    } else if (header.colour == grey && header.depth < 16 && chunk.size() >= 2) {
      nothing.fill(chunk[1]);
    } else if (header.colour == rgb && chunk.size() >= 6) {
      for (size_t c = 0; c < 3; ++c) nothing[c] = chunk[2 * c + 1];
    }
  }
};

// A channel over opaque white, in the steps in which Pillow puts pictures over one another.
uint8_t over_white(uint32_t value, uint32_t alpha) {
  const uint32_t sum = ((value * alpha + 255 * (255 - alpha)) << 7) + (0x80 << 7);
  return static_cast<uint8_t>((((sum >> 8) + sum) >> 8) >> 7);
}

// One pixel of a row; white shines through where it is transparent, if that is not null.
void give_pixel(const Header& header, const Palette& colours, const Transparency* transparency,
                const uint8_t* row, size_t x, uint8_t* to) {
  const size_t bytes = static_cast<size_t>(header.depth) / 8;  // of a channel, 0 for small ones
  const uint8_t* place = row + x * bytes * static_cast<size_t>(header.channels());
  uint32_t value = place[0];
  if (bytes == 0) {
    const size_t bit = x * static_cast<size_t>(header.depth);
    value =
        row[bit / 8] >> (8 - header.depth - static_cast<int>(bit % 8)) & ((1u << header.depth) - 1);
  }
  uint32_t alpha = 255;
  switch (header.colour) {
    case palette:
      std::copy_n(colours[value].begin(), 3, to);
      if (transparency != nullptr) alpha = transparency->of_palette[value];
      break;
    case rgb:
    case rgb_alpha:
      for (size_t c = 0; c < 3; ++c) to[c] = place[c * bytes];  // of 16 bits the upper ones
      if (header.colour == rgb_alpha) alpha = place[3 * bytes];
      break;
    case grey:
      if (bytes == 0) value = value * 255 / ((1u << header.depth) - 1);
      if (bytes == 2)
        value = static_cast<uint32_t>(std::nearbyint((place[0] << 8 | place[1]) / 65535.0 * 255));
      std::fill_n(to, 3, static_cast<uint8_t>(value));
      break;
    case grey_alpha:
      std::fill_n(to, 3, static_cast<uint8_t>(value));
      alpha = place[bytes];
      break;
  }
  if (transparency == nullptr) return;
  if (std::equal(transparency->nothing.begin(), transparency->nothing.end(), to)) alpha = 0;
  for (size_t c = 0; c < 3; ++c) to[c] = over_white(to[c], alpha);
}

struct Pass {
  uint32_t left, top, across, down;
};
constexpr Pass kWhole[] = {{0, 0, 1, 1}};
constexpr Pass kInterlaced[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};

Image read_rows(const Header& header, const Palette& colours, const Transparency* transparency,
                Bytes data) {
  Inflater inflater(data);
  Image image(header.width, header.height);
  const size_t pixel =
      std::max<size_t>(1, static_cast<size_t>(header.channels() * header.depth) / 8);
  const auto passes =
      header.interlaced ? std::span<const Pass>(kInterlaced) : std::span<const Pass>(kWhole);
  for (const Pass& pass : passes) {
    if (pass.left >= header.width || pass.top >= header.height) continue;
    const uint32_t columns = (header.width - pass.left + pass.across - 1) / pass.across;
    std::vector<uint8_t> row(header.row_bytes(columns)), above(row.size());
    for (uint32_t y = pass.top; y < header.height; y += pass.down) {
      uint8_t filter;
      inflater.read(std::span(&filter, 1));
      inflater.read(row);
      unfilter(filter, row, above, pixel);
      for (uint32_t x = 0; x < columns; ++x)
        give_pixel(header, colours, transparency, row.data(), x,
                   image.pixel(pass.left + x * pass.across, y));
      row.swap(above);
    }
  }
  inflater.finish();
  return image;
}

// A packet of XMP in an iTXt chunk that is not compressed; empty if it is none.
Bytes xmp_of(Bytes chunk) {
  static constexpr std::string_view kKey("XML:com.adobe.xmp\0\0", 19);
  const bool is_xmp =
      chunk.size() > kKey.size() && std::equal(kKey.begin(), kKey.end(), chunk.begin());
  return is_xmp ? chunk.subspan(kKey.size()) : Bytes();
}

}  // namespace

Image read_png(Bytes file, int& orientation, Alpha alpha) {
  std::vector<uint8_t> data;
  Palette colours{};
  Transparency transparency;
  Header header{};
  bool has_header = false, has_palette = false;
  int turned = 0, turned_by_xmp = 0;
  for (size_t place = 8;;) {
    if (file.size() - place < 12) {
      if (data.empty()) throw ImageError("its data end too early");
      break;  // the last chunk is missing, which the rows will show if it matters
    }
    const size_t length = big_endian(file.data() + place);
    if (length > file.size() - place - 12) throw ImageError("its data end too early");
    const Bytes named = file.subspan(place + 4, 4 + length), chunk = named.subspan(4);
    const std::string_view name(reinterpret_cast<const char*>(named.data()), 4);
    const bool critical = (named[0] & 32) == 0;
    if (critical && crc(named) != big_endian(chunk.data() + length))
      throw ImageError("a chunk's checksum is wrong");
    if (!has_header && name != "IHDR") throw ImageError("it does not begin with its header");
    if (name == "IHDR") {
      if (has_header) throw ImageError("it has two headers");
      header = read_header(chunk);
      has_header = true;
    } else if (name == "PLTE") {
      const size_t count = std::min<size_t>(256, length / 3);
      for (size_t i = 0; i < count; ++i) std::copy_n(&chunk[i * 3], 3, colours[i].begin());
      has_palette = true;
    } else if (name == "tRNS") {
      transparency.read(header, chunk);
    } else if (name == "IDAT") {
      data.insert(data.end(), chunk.begin(), chunk.end());
    } else if (name == "eXIf") {
      turned = exif_orientation(chunk);
    } else if (name == "iTXt") {
      turned_by_xmp = xmp_orientation(xmp_of(chunk));
    } else if (name == "IEND") {
      break;
    } else if (critical) {
      throw ImageError("it has a chunk " + std::string(name) + ", which is not known");
    }
    place += 12 + length;
  }
  if (header.colour == palette && !has_palette) throw ImageError("its colours are missing");
  orientation = turned != 0 ? turned : turned_by_xmp;
  return read_rows(header, colours, alpha == Alpha::on_white ? &transparency : nullptr, data);
}

}  // namespace satchel::vision
