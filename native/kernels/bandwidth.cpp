#include "bandwidth.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "measure.h"

namespace satchel {
namespace {

typedef uint64_t Vector __attribute__((vector_size(16)));

constexpr size_t kLine = 64;
constexpr size_t kUnit = 4 * kLine;  // so that any number of streams below divides it
constexpr size_t kBytesAhead = 2048;

// Some streams side by side, which keeps more prefetchers busy; or asked for ahead, where they stop
// at pages.
template <size_t kStreams, bool kAsk>
uint64_t read_all(const unsigned char* data, size_t bytes) {
  Vector sums[kStreams][kLine / sizeof(Vector)] = {};
  const size_t stream = bytes / kStreams;
  for (size_t i = 0; i + kLine <= stream; i += kLine) {
    for (size_t s = 0; s < kStreams; ++s) {
      if constexpr (kAsk) __builtin_prefetch(data + s * stream + i + kBytesAhead);
      for (size_t j = 0; j < kLine / sizeof(Vector); ++j) {
        Vector v;
        std::memcpy(&v, data + s * stream + i + j * sizeof v, sizeof v);
        sums[s][j] += v;
      }
    }
  }
  Vector total = {};
  for (const auto& lines : sums) {
    for (const Vector& v : lines) total += v;
  }
  return total[0] + total[1];
}

constexpr size_t kHugePage = size_t{2} << 20;

struct Free {
  void operator()(unsigned char* p) const { ::operator delete(p, std::align_val_t{kHugePage}); }
};

// In huge pages where the system has them, which are read fastest.
std::unique_ptr<unsigned char, Free> buffer(size_t size) {
  const size_t whole = (size + kHugePage - 1) / kHugePage * kHugePage;
  std::unique_ptr<unsigned char, Free> data(
      static_cast<unsigned char*>(::operator new(whole, std::align_val_t{kHugePage})));
#ifdef MADV_HUGEPAGE
  ::madvise(data.get(), whole, MADV_HUGEPAGE);
#endif
  return data;
}

}  // namespace

double measure_read_bandwidth(int threads, size_t bytes, int repeats) {
  threads = std::max(threads, 1);
  const size_t units = std::max<size_t>(bytes / static_cast<size_t>(threads) / kUnit, 1);
  const size_t part = units * kUnit;
  std::atomic<uint64_t> sink{0};  // so that the sums, and with them the reads, are needed
  // Both ways in turns: which one is the faster differs from one CPU to the next.
  const double seconds = shortest_round(threads, 2 * repeats, [&] {
    // Each thread touches its own part first, so that the pages lie near it.
    std::unique_ptr<unsigned char, Free> data = buffer(part);
    std::memset(data.get(), 1, part);
    return [&sink, part, data = std::move(data), ahead = true]() mutable {
      ahead = !ahead;
      const auto read = ahead ? read_all<1, true> : read_all<4, false>;
      sink.fetch_add(read(data.get(), part), std::memory_order_relaxed);
    };
  });
  return static_cast<double>(part) * threads / seconds;
}

}  // namespace satchel
