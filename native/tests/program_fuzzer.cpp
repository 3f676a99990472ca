// Loads damaged programs, and runs the methods of those that load. Sections are changed one at a
// time and put together again with right places and checksums, so that the structure itself is what
// is tried. With clang and -fsanitize=fuzzer this is a target of libFuzzer (SATCHEL_LIBFUZZER),
// else a program that changes files by itself and prints counts as JSON:
//   program_fuzzer [--seconds N] [--files N] [--seed N] [--keep-slow FOLDER] PROGRAM…
// Times are those of the thread itself, whatever else the machine does. With --keep-slow, files
// that take longer than a second to load or run are written there.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../runtime/errors.h"
#include "../runtime/instance.h"
#include "../runtime/sha256.h"

using namespace satchel;

namespace {

using Bytes = std::vector<uint8_t>;

struct Counts {
  uint64_t files = 0, refused = 0, loaded = 0, ran = 0;
  double slowest_load = 0, slowest = 0;
};

double thread_seconds() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// A file that has no name, and is written anew for each try.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("attacked", MFD_CLOEXEC)) {
    if (file_ < 0) std::abort();
    path_ = "/proc/self/fd/" + std::to_string(file_);
  }
  ~MemoryFile() { ::close(file_); }

  const std::string& write(const uint8_t* data, size_t size) {
    if (::ftruncate(file_, 0) != 0 || ::pwrite(file_, data, size, 0) != static_cast<ssize_t>(size))
      std::abort();
    return path_;
  }

 private:
  int file_;
  std::string path_;
};

// Calls a method with its symbols at their smallest or at their largest, unless that is too much.
bool call(Instance& instance, const Program& program, size_t number, bool largest) {
  constexpr uint64_t kMost = 1 << 18;
  const Method& method = program.methods()[number];
  if (method.arena_size > kMost * 64) return false;
  std::vector<int64_t> sizes;
  for (const SymbolInfo& symbol : method.symbols) sizes.push_back(largest ? symbol.maximum : 1);
  if (!compute_sizes(method.symbols, sizes)) return false;
  std::vector<Bytes> data;
  std::vector<ArrayView> inputs;
  for (const uint32_t id : method.inputs) {
    const ValueInfo& value = method.values[id];
    ArrayView view{value.dtype, value.shape, nullptr};
    uint64_t bytes = dtype_size(value.dtype);
    for (int64_t& dim : view.shape) {
      if (dim < 0) dim = sizes[static_cast<size_t>(-1 - dim)];
      bytes = std::min(bytes * static_cast<uint64_t>(dim), kMost + 1);
      if (bytes > kMost) return false;
    }
    data.emplace_back(bytes, largest ? 0 : static_cast<uint8_t>(bytes % 3));
    // A mask that chooses some.
    if (largest && value.dtype == DType::boolean)
      for (size_t i = 0; i < bytes; i += 2) data.back()[i] = 1;
    inputs.push_back(std::move(view));
  }
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].data = data[i].data();
  try {
    instance.run(number, inputs);
    return true;
  } catch (const ExecutionError&) {
    return false;
  }
}

// Returns how long it took.
double try_file(const uint8_t* data, size_t size, Counts& counts) {
  static MemoryFile file;
  const std::string& path = file.write(data, size);
  const double begin = thread_seconds();
  const auto took_to_load = [&] {
    counts.slowest_load = std::max(counts.slowest_load, thread_seconds() - begin);
  };
  ++counts.files;
  try {
    const auto program = std::make_shared<Program>(path);
    took_to_load();
    ++counts.loaded;
    uint64_t states = 0;
    for (const StateInfo& state : program->states()) states += state.bytes;
    if (states < uint64_t{1} << 28) {
      Instance instance(program, 1);
      for (size_t i = 0; i < std::min<size_t>(program->methods().size(), 8); ++i) {
        for (const bool largest : {false, true}) counts.ran += call(instance, *program, i, largest);
      }
    }
  } catch (const FormatError&) {
    took_to_load();
    ++counts.refused;
  } catch (const ExecutionError&) {  // it asks for more memory than there is
  }
  const double took = thread_seconds() - begin;
  counts.slowest = std::max(counts.slowest, took);
  return took;
}

// --- A file as its sections, docs/format.md ---

constexpr size_t kHeader = 64, kRecord = 64;
constexpr uint32_t kWeights = 4;

struct Section {
  uint32_t kind;
  Digest digest;  // of what was changed it is made anew, but for weights
  Bytes bytes;
  bool is_changed = false;
};

template <typename T>
T number_at(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct Parts {
  uint32_t version = 0;  // of the format
  std::vector<Section> sections;
};

Parts take_apart(const uint8_t* data, size_t size) {
  if (size < kHeader) return {};
  Parts parts{number_at<uint32_t>(data + 8), {}};
  const size_t count = std::min<size_t>(number_at<uint32_t>(data + 12), 8);
  for (size_t i = 0; i < count && kHeader + (i + 1) * kRecord <= size; ++i) {
    const uint8_t* record = data + kHeader + i * kRecord;
    const auto offset = number_at<uint64_t>(record + 8), length = number_at<uint64_t>(record + 16);
    if (offset > size || length > size - offset) break;
    Section section{number_at<uint32_t>(record), {}, {data + offset, data + offset + length}};
    std::memcpy(section.digest.data(), record + 32, section.digest.size());
    parts.sections.push_back(std::move(section));
  }
  return parts;
}

Bytes put_together(const Parts& parts) {
  const std::vector<Section>& sections = parts.sections;
  Bytes out(kHeader + sections.size() * kRecord, 0);
  const auto put = [&](size_t at, const auto& value) {
    std::memcpy(out.data() + at, &value, sizeof value);
  };
  std::memcpy(out.data(), "SATCHEL", 8);
  put(8, parts.version);
  put(12, static_cast<uint32_t>(sections.size()));
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section& section = sections[i];
    const size_t alignment = section.kind == kWeights ? 4096 : 256;
    out.resize((out.size() + alignment - 1) / alignment * alignment, 0);
    Digest digest = section.digest;
    if (section.is_changed && section.kind != kWeights) {
      Sha256 hash;
      hash.update(section.bytes.data(), section.bytes.size());
      digest = hash.finish();
    }
    const size_t record = kHeader + i * kRecord;
    put(record, section.kind);
    put(record + 8, static_cast<uint64_t>(out.size()));
    put(record + 16, static_cast<uint64_t>(section.bytes.size()));
    put(record + 32, digest);
    out.insert(out.end(), section.bytes.begin(), section.bytes.end());
  }
  put(16, static_cast<uint64_t>(out.size()));
  Sha256 hash;
  hash.update(out.data(), 32);
  hash.update(out.data() + kHeader, sections.size() * kRecord);
  put(32, hash.finish());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Counts counts;
  try_file(data, size, counts);
  return 0;
}

#ifdef SATCHEL_LIBFUZZER

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  Parts parts = take_apart(data, size);
  if (parts.sections.empty() || seed % 16 == 0) return LLVMFuzzerMutate(data, size, most);
  Section& section = parts.sections[seed / 16 % parts.sections.size()];
  section.is_changed = true;
  Bytes& bytes = section.bytes;
  const size_t before = bytes.size();
  bytes.resize(before + 256);
  bytes.resize(LLVMFuzzerMutate(bytes.data(), before, bytes.size()));
  const Bytes whole = put_together(parts);
  if (whole.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::copy(whole.begin(), whole.end(), data);
  return whole.size();
}

#else

namespace {

void change(Bytes& bytes, std::mt19937_64& random) {
  static constexpr uint64_t kOdd[] = {
      0,          1,          2,          3,          4,
      7,          8,          15,         16,         17,
      63,         64,         127,        128,        255,
      256,        65535,      65536,      1u << 24,   0x7FFFFFFF,
      1u << 31,   ~0u,        1ull << 32, 1ull << 40, (1ull << 40) + 1,
      1ull << 46, 1ull << 62, ~0ull >> 1, 1ull << 63, ~0ull};
  if (bytes.empty()) bytes.push_back(0);
  const size_t at = random() % bytes.size(), left = bytes.size() - at;
  const uint64_t odd = kOdd[random() % std::size(kOdd)];
  const size_t from = random() % bytes.size();
  const size_t length = std::min({left, bytes.size() - from, size_t{1} + random() % 64});
  switch (random() % 8) {
    case 0:
      bytes[at] ^= static_cast<uint8_t>(1u << random() % 8);
      break;
    case 1:
      bytes[at] = static_cast<uint8_t>(random());
      break;
    case 2:
      bytes[at] = static_cast<uint8_t>(odd);
      break;
    case 3:
      std::memcpy(bytes.data() + at, &odd, std::min<size_t>(left, 4));
      break;
    case 4:
      std::memcpy(bytes.data() + at, &odd, std::min<size_t>(left, 8));
      break;
    case 5:
      std::memmove(bytes.data() + at, bytes.data() + from, length);
      break;
    case 6:
      bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at),
                  bytes.begin() + static_cast<ptrdiff_t>(at + length));
      break;
    default: {
      const Bytes copy(bytes.begin() + static_cast<ptrdiff_t>(from),
                       bytes.begin() + static_cast<ptrdiff_t>(from + length));
      bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), copy.begin(), copy.end());
    }
  }
}

Bytes changed(const Parts& seed, std::mt19937_64& random) {
  Parts parts = seed;
  std::vector<Section>& sections = parts.sections;
  const uint64_t times = 1 + random() % 3;
  for (uint64_t i = 0; i < times; ++i) {
    // Mostly the methods and the index: of the others, loading reads only the checksums.
    const size_t number = random() % 8 ? 1 + random() % 2 : random() % sections.size();
    if (number >= sections.size()) continue;
    change(sections[number].bytes, random);
    sections[number].is_changed = true;
  }
  Bytes whole = put_together(parts);
  if (random() % 64 == 0) change(whole, random);
  return whole;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 60;
  uint64_t files = ~uint64_t{0}, seed = 1;
  std::string keep_slow;
  std::vector<Parts> seeds;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--seconds" && has_value) {
      seconds = std::atof(argv[++i]);
    } else if (argument == "--files" && has_value) {
      files = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--seed" && has_value) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--keep-slow" && has_value) {
      keep_slow = argv[++i];
    } else {
      std::ifstream in(argument, std::ios::binary);
      const Bytes data((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
      seeds.push_back(take_apart(data.data(), data.size()));
      // Where a good program is refused as it is, all that is made of it would be, and unseen.
      const Bytes whole = put_together(seeds.back());
      try {
        Program(MemoryFile().write(whole.data(), whole.size()));
      } catch (const FormatError& error) {
        std::fprintf(stderr, "%s, put together again: %s\n", argv[i], error.what());
        return 2;
      }
    }
  }
  if (seeds.empty()) {
    std::fprintf(stderr,
                 "usage: %s [--seconds N] [--files N] [--seed N] [--keep-slow FOLDER] PROGRAM...\n",
                 argv[0]);
    return 2;
  }
  std::mt19937_64 random(seed);
  Counts counts;
  const auto begin = std::chrono::steady_clock::now();
  while (counts.files < files &&
         std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(seconds)) {
    const Bytes data = changed(seeds[random() % seeds.size()], random);
    if (try_file(data.data(), data.size(), counts) > 1.0 && !keep_slow.empty()) {
      const std::string name = std::to_string(seed) + "-" + std::to_string(counts.files);
      std::ofstream out(keep_slow + "/" + name + ".satchel", std::ios::binary);
      out.write(reinterpret_cast<const char*>(data.data()),
                static_cast<std::streamsize>(data.size()));
    }
  }
  std::printf(
      "{\"files\": %llu, \"refused\": %llu, \"loaded\": %llu, \"ran\": %llu, "
      "\"slowest_load\": %.3f, \"slowest\": %.3f}\n",
      static_cast<unsigned long long>(counts.files),
      static_cast<unsigned long long>(counts.refused),
      static_cast<unsigned long long>(counts.loaded), static_cast<unsigned long long>(counts.ran),
      counts.slowest_load, counts.slowest);
  return 0;
}

#endif
