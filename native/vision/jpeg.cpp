// The markers of a JPEG: ITU-T T.81, annex B.
#include "jpeg.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "orientation.h"

namespace satchel::vision {

namespace {

using namespace jpeg;

constexpr int kMostScans = 100;  // of a progressive picture; encoders make some 10

class Reader {
 public:
  explicit Reader(Bytes file) : file_(file) {}

  Image read(int& orientation) {
    for (uint8_t marker; (marker = next_marker()) != kEnd;) {
      if (marker >= 0xD0 && marker <= 0xD8) continue;  // without a segment
      const Bytes segment = next_segment();
      switch (marker) {
        case 0xC0:
        case 0xC1:
        case 0xC2:
          read_frame(segment, marker == 0xC2);
          break;
        case 0xC4:
          read_codes(segment);
          break;
        case 0xDA:
          read_scan_of(segment);
          break;
        case 0xDB:
          read_quantization(segment);
          break;
        case 0xDD:
          if (segment.size() < 2) damaged();
          tables_.restart_interval = two(segment, 0);
          break;
        case 0xE0:
          frame_.has_jfif |= segment.size() >= 12 && begins(segment, std::string_view("JFIF\0", 5));
          break;
        case 0xE1:
          read_orientation(segment);
          break;
        case 0xEE:
          if (segment.size() >= 12 && begins(segment, "Adobe"))
            frame_.adobe_transform = segment[11];
          break;
        default:
          if (marker == 0xC3 || (marker >= 0xC5 && marker <= 0xCF)) {
            throw ImageError("it is a lossless, hierarchical or arithmetic JPEG");
          }
      }
    }
    orientation = exif_ != 0 ? exif_ : xmp_;
    return finished();
  }

 private:
  static constexpr uint8_t kEnd = 0xD9;

  [[noreturn]] static void damaged() { throw ImageError("its header is damaged"); }

  static uint32_t two(Bytes bytes, size_t at) {
    return static_cast<uint32_t>(bytes[at]) << 8 | bytes[at + 1];
  }

  static bool begins(Bytes segment, std::string_view with) {
    return segment.size() >= with.size() && std::equal(with.begin(), with.end(), segment.begin());
  }

  bool is_whole() const {
    return !frame_.components.empty() &&
           std::all_of(frame_.components.begin(), frame_.components.end(),
                       [](const Component& c) { return c.is_decoded; });
  }

  // What lies between segments is skipped. A sequential picture that is whole may lack its end.
  uint8_t next_marker() {
    for (; place_ + 1 < file_.size(); ++place_) {
      const uint8_t marker = file_[place_ + 1];
      if (file_[place_] != 0xFF || marker == 0xFF || marker == 0) continue;
      place_ += 2;
      return marker;
    }
    if (!is_whole() || frame_.progressive) throw ImageError("its data end too early");
    return kEnd;
  }

  Bytes next_segment() {
    if (file_.size() - place_ < 2) throw ImageError("its data end too early");
    const size_t length = two(file_, place_);
    if (length < 2 || length > file_.size() - place_) throw ImageError("its data end too early");
    const Bytes segment = file_.subspan(place_ + 2, length - 2);
    place_ += length;
    return segment;
  }

  void read_quantization(Bytes segment) {
    while (!segment.empty()) {
      const size_t table = segment[0] & 15, bytes = segment[0] >> 4 == 0 ? 1 : 2;
      if (table > 3 || segment[0] >> 4 > 1 || segment.size() < 1 + 64 * bytes) damaged();
      for (size_t k = 0; k < 64; ++k) {
        const size_t at = 1 + k * bytes;
        tables_.quantization[table][kZigzag[k]] =
            static_cast<uint16_t>(bytes == 1 ? segment[at] : two(segment, at));
      }
      tables_.has_quantization[table] = true;
      segment = segment.subspan(1 + 64 * bytes);
    }
  }

  void read_codes(Bytes segment) {
    while (!segment.empty()) {
      if (segment.size() < 17 || (segment[0] & 15) > 3 || segment[0] >> 4 > 1) damaged();
      const auto counts = segment.subspan(1).first<16>();
      size_t symbols = 0;
      for (const uint8_t count : counts) symbols += count;
      if (segment.size() < 17 + symbols) damaged();
      auto& codes = segment[0] >> 4 == 0 ? tables_.dc : tables_.ac;
      codes[segment[0] & 15] = HuffmanCode(counts, segment.subspan(17, symbols));
      segment = segment.subspan(17 + symbols);
    }
  }

  void read_frame(Bytes segment, bool progressive) {
    if (!frame_.components.empty()) throw ImageError("it has two frames");
    if (segment.size() < 6 || segment.size() < 6 + size_t{3} * segment[5]) damaged();
    if (segment[0] != 8)
      throw ImageError("its samples have " + std::to_string(segment[0]) + " bits, not 8");
    const size_t count = segment[5];
    if (count != 1 && count != 3 && count != 4)
      throw ImageError("it has " + std::to_string(count) + " components");
    frame_.height = two(segment, 1);
    frame_.width = two(segment, 3);
    check_size(static_cast<uint64_t>(frame_.width), static_cast<uint64_t>(frame_.height));
    frame_.progressive = progressive;
    for (size_t i = 0; i < count; ++i) {
      Component component;
      component.id = segment[6 + i * 3];
      component.across = segment[7 + i * 3] >> 4;
      component.down = segment[7 + i * 3] & 15;
      component.table = segment[8 + i * 3];
      if (component.across < 1 || component.across > 4 || component.down < 1 ||
          component.down > 4 || component.table > 3)
        damaged();
      frame_.most_across = std::max(frame_.most_across, component.across);
      frame_.most_down = std::max(frame_.most_down, component.down);
      frame_.components.push_back(std::move(component));
    }
    const auto divided = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    frame_.units_across = divided(frame_.width, 8 * frame_.most_across);
    frame_.units_down = divided(frame_.height, 8 * frame_.most_down);
    for (Component& component : frame_.components) {
      component.width = divided(frame_.width * component.across, frame_.most_across);
      component.height = divided(frame_.height * component.down, frame_.most_down);
      component.columns = frame_.units_across * component.across;
      component.rows = frame_.units_down * component.down;
      const auto blocks = static_cast<size_t>(component.columns * component.rows);
      if (progressive) {
        component.blocks.resize(blocks);
      } else {
        component.samples.resize(blocks * 64);
      }
    }
  }

  void read_scan_of(Bytes segment) {
    if (frame_.components.empty()) throw ImageError("it has a scan before its frame");
    const size_t count = segment.empty() ? 0 : segment[0];
    if (count < 1 || count > 4 || segment.size() < 4 + 2 * count) damaged();
    if (++scans_ > kMostScans)
      throw ImageError("it has more than " + std::to_string(kMostScans) + " scans");
    Scan scan;
    int blocks = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint8_t id = segment[1 + 2 * i], codes = segment[2 + 2 * i];
      const auto& all = frame_.components;
      const auto found =
          std::find_if(all.begin(), all.end(), [&](const Component& c) { return c.id == id; });
      if (found == all.end() || codes >> 4 > 3 || (codes & 15) > 3) damaged();
      const auto number = static_cast<size_t>(found - all.begin());
      for (const ScanPart& part : scan.parts) {
        if (part.component == number) damaged();
      }
      scan.parts.push_back(
          {number, static_cast<uint8_t>(codes >> 4), static_cast<uint8_t>(codes & 15)});
      blocks += found->across * found->down;
    }
    if (count > 1 && blocks > 10) damaged();
    if (frame_.progressive) {
      scan.first = segment[1 + 2 * count];
      scan.last = segment[2 + 2 * count];
      scan.high = segment[3 + 2 * count] >> 4;
      scan.low = segment[3 + 2 * count] & 15;
      const bool fits = scan.first == 0 ? scan.last == 0 : count == 1 && scan.last >= scan.first;
      if (!fits || scan.last > 63 || scan.low > 13 || (scan.high != 0 && scan.high != scan.low + 1))
        damaged();
    }
    for (const ScanPart& part : scan.parts) {
      Component& component = frame_.components[part.component];
      if (!frame_.progressive && component.is_decoded) throw ImageError("it has a scan twice");
      if (!tables_.has_quantization[component.table]) throw ImageError("a table is missing");
      const bool needs_dc = scan.first == 0 && scan.high == 0, needs_ac = scan.last > 0;
      if ((needs_dc && !tables_.dc[part.dc].is_there()) ||
          (needs_ac && !tables_.ac[part.ac].is_there()))
        throw ImageError("a table is missing");
      component.is_decoded = true;
    }
    place_ = read_scan(frame_, tables_, scan, file_, place_);
  }

  void read_orientation(Bytes segment) {
    static constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
    if (begins(segment, std::string_view("Exif\0\0", 6))) {
      if (exif_ == 0) exif_ = exif_orientation(segment);
    } else if (begins(segment, kXmp)) {
      xmp_ = xmp_orientation(segment.subspan(kXmp.size()));
    }
  }

  Image finished() {
    if (!is_whole()) throw ImageError("its data end too early");
    for (Component& component : frame_.components) {
      if (!frame_.progressive) break;
      component.samples.resize(component.blocks.size() * 64);
      const int64_t stride = component.columns * 8;
      for (int64_t i = 0; i < component.columns * component.rows; ++i) {
        const int64_t row = i / component.columns * 8, column = i % component.columns * 8;
        transform(component.blocks[static_cast<size_t>(i)], tables_.quantization[component.table],
                  component.samples.data() + row * stride + column, stride);
      }
      std::vector<Block>().swap(component.blocks);
    }
    return colours(frame_);
  }

  Bytes file_;
  size_t place_ = 0;
  Frame frame_;
  Tables tables_;
  int scans_ = 0, exif_ = 0, xmp_ = 0;
};

}  // namespace

Image read_jpeg(Bytes file, int& orientation) { return Reader(file).read(orientation); }

}  // namespace satchel::vision
