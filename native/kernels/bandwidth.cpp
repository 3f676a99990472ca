#include "bandwidth.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace satchel {
namespace {

typedef uint64_t Vector __attribute__((vector_size(16)));
using Clock = std::chrono::steady_clock;

struct Span {
  Clock::time_point begin, end;
};

constexpr size_t kStreams = 4;  // read side by side, which keeps more prefetchers busy
constexpr size_t kLine = 64;

uint64_t read_all(const unsigned char* data, size_t bytes) {
  Vector sums[kStreams][kLine / sizeof(Vector)] = {};
  const size_t stream = bytes / kStreams;
  for (size_t i = 0; i + kLine <= stream; i += kLine) {
    for (size_t s = 0; s < kStreams; ++s) {
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

}  // namespace

double measure_read_bandwidth(int threads, size_t bytes, int repeats) {
  threads = std::max(threads, 1);
  repeats = std::max(repeats, 1);
  constexpr size_t kUnit = kStreams * kLine;
  const size_t units = std::max<size_t>(bytes / static_cast<size_t>(threads) / kUnit, 1);
  const size_t part = units * kUnit;
  std::vector<std::vector<Span>> spans(static_cast<size_t>(threads));
  std::atomic<uint64_t> sink{0};  // so that the sums, and with them the reads, are needed
  std::barrier start(threads);

  const auto work = [&](std::vector<Span>& mine) {
    // Each thread touches its own part first, so that the pages lie near it.
    const std::unique_ptr<unsigned char[]> data(new unsigned char[part]);
    std::memset(data.get(), 1, part);
    for (int r = 0; r < repeats; ++r) {
      start.arrive_and_wait();
      const Clock::time_point begin = Clock::now();
      sink.fetch_add(read_all(data.get(), part), std::memory_order_relaxed);
      mine.push_back({begin, Clock::now()});
    }
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < spans.size(); ++t) others.emplace_back(work, std::ref(spans[t]));
  work(spans[0]);
  for (std::thread& t : others) t.join();

  double best = 0.0;
  for (size_t r = 0; r < static_cast<size_t>(repeats); ++r) {
    Span all = spans[0][r];
    for (const std::vector<Span>& s : spans) {
      all.begin = std::min(all.begin, s[r].begin);
      all.end = std::max(all.end, s[r].end);
    }
    const double seconds = std::chrono::duration<double>(all.end - all.begin).count();
    best = std::max(best, static_cast<double>(part) * threads / seconds);
  }
  return best;
}

}  // namespace satchel
