// Timing work that several threads do side by side.
#pragma once

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

namespace satchel {

// The seconds of the shortest of `repeats` rounds, from the first thread's start to the last one's
// end. Each thread calls `prepare` once, and what that returns in every round.
template <class Prepare>
double shortest_round(int threads, int repeats, Prepare prepare) {
  using Clock = std::chrono::steady_clock;
  struct Span {
    Clock::time_point begin, end;
  };
  threads = std::max(threads, 1);
  repeats = std::max(repeats, 1);
  std::vector<std::vector<Span>> spans(static_cast<size_t>(threads));
  std::barrier start(threads);
  const auto work = [&](std::vector<Span>& mine) {
    auto round = prepare();
    for (int r = 0; r < repeats; ++r) {
      start.arrive_and_wait();
      const Clock::time_point begin = Clock::now();
      round();
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
    best = r == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

}  // namespace satchel
