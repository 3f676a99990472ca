// Damages pictures and decodes them. Built with sanitizers, the first thing that is done wrong ends
// it:
//   image_fuzzer SECONDS SEED FILE…    (PNG and JPEG; sums of PNG chunks are set right again)
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "../vision/preprocess.h"

using namespace satchel;
using namespace satchel::vision;

namespace {

using File = std::vector<uint8_t>;

uint32_t crc(const uint8_t* bytes, size_t count) {
  uint32_t sum = 0xFFFFFFFFu;
  for (size_t i = 0; i < count; ++i) {
    sum ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) sum = (sum & 1) != 0 ? 0xEDB88320u ^ sum >> 1 : sum >> 1;
  }
  return ~sum;
}

// Else hardly anything would come past the checksums.
void set_sums(File& file) {
  for (size_t place = 8; place + 12 <= file.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | file[place + i];
    if (length > file.size() - place - 12) return;
    const uint32_t sum = crc(&file[place + 4], 4 + length);
    for (size_t i = 0; i < 4; ++i)
      file[place + 8 + length + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
    place += 12 + length;
  }
}

File damaged(File file, std::mt19937_64& random) {
  const int times = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < times && file.size() > 8; ++i) {
    // Half of the damage is in the beginning, where sizes and tables are.
    const size_t range = random() % 2 == 0 ? std::min<size_t>(file.size(), 640) : file.size();
    const size_t at = 8 + random() % (range - 8);
    switch (random() % 4) {
      case 0:
        file[at] = static_cast<uint8_t>(random());
        break;
      case 1:
        file[at] = static_cast<uint8_t>(file[at] ^ 1u << random() % 8);
        break;
      case 2:
        std::swap(file[at], file[8 + random() % (file.size() - 8)]);
        break;
      default:
        if (random() % 4 == 0) file.resize(at);
    }
  }
  if (file[0] == 0x89) set_sums(file);
  return file;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s SECONDS SEED FILE…\n", argv[0]);
    return 2;
  }
  std::mt19937_64 random(std::strtoull(argv[2], nullptr, 10));
  std::vector<File> seeds;
  for (int i = 3; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (seeds.back().size() <= 16) {
      std::fprintf(stderr, "%s is no picture\n", argv[i]);
      return 2;
    }
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  const Preprocessing preprocessing{16, 12, 12, {}, {1, 1, 1}, Interpolation::bicubic};
  unsigned long long accepted = 0, refused = 0;
  while (std::chrono::steady_clock::now() < end) {
    const File file = damaged(seeds[random() % seeds.size()], random);
    try {
      preprocessing.prepare(read_image(file, "it"));
      ++accepted;
    } catch (const ImageError&) {
      ++refused;
    }
  }
  std::printf("pictures: %llu accepted, %llu refused\n", accepted, refused);
}
