#include "thread_pool.h"

#include <algorithm>
#include <map>
#include <utility>

#if defined(__linux__)
#include <sched.h>
#endif

#include "process.h"

namespace satchel {

namespace {

constexpr int kSpins = 20000;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

int default_threads() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::shared_ptr<ThreadPool> ThreadPool::shared(int threads) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, std::weak_ptr<ThreadPool>> pools;
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<ThreadPool>& kept = pools[{this_process(), threads}];
  std::shared_ptr<ThreadPool> pool = kept.lock();
  if (!pool) {
    // A forked process leaves its parent's pool as it is: there is nobody to wait for.
    kept = pool = {new ThreadPool(threads), [](const ThreadPool* own) {
                     if (own->is_ours()) delete own;
                   }};
  }
  return pool;
}

ThreadPool::ThreadPool(int threads)
    : shares_(std::min(static_cast<size_t>(std::max(threads, 1)), kMostShares)) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker(i); });
  } catch (...) {  // the system gives no more threads: those there are must end before the error
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_.store(true);
  generation_.fetch_add(1);
  wake();
  for (std::thread& thread : workers_) thread.join();
}

// After the generation has changed. Who counts itself among the sleepers later sees the change, and
// who did before is woken: both are in one order for all threads.
void ThreadPool::wake() {
  if (sleepers_.load() == 0) return;
  const std::lock_guard<std::mutex> lock(sleep_);
  awake_.notify_all();
}

void ThreadPool::run(Call call, const void* context, int64_t count, int64_t grain) {
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  call_.store(call, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  count_.store(count, std::memory_order_relaxed);
  grain_.store(grain, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  for (Share& share : shares_)
    share.ticket.store(uint64_t{generation} << 32, std::memory_order_release);
  generation_.store(generation);
  wake();
  take_pieces(generation, 0);
  // Whoever has taken the last piece may have lost its core to others.
  for (int spins = 0; done_.load(std::memory_order_acquire) != count; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
  for (Share& share : shares_)
    share.ticket.store(uint64_t{generation} << 32 | kClosed, std::memory_order_release);
}

void ThreadPool::take_pieces(uint32_t generation, int thread) {
  const size_t count = shares_.size(),
               own = static_cast<size_t>(thread) * count / static_cast<size_t>(size());
  for (size_t i = 0; i < count; ++i) {
    const int64_t done = take_share(generation, thread, (own + i) % count);
    if (done > 0) done_.fetch_add(done, std::memory_order_release);
  }
}

// Returns how many items it has done.
int64_t ThreadPool::take_share(uint32_t generation, int thread, size_t share) {
  std::atomic<uint64_t>& next = shares_[share].ticket;
  int64_t done = 0;
  for (uint64_t ticket = next.load(std::memory_order_acquire);;) {
    if (ticket >> 32 != generation) return done;
    const Call call = call_.load(std::memory_order_relaxed);
    const void* context = context_.load(std::memory_order_relaxed);
    const int64_t count = count_.load(std::memory_order_relaxed),
                  grain = grain_.load(std::memory_order_relaxed);
    const int64_t first = share_begin(share, count), last = share_begin(share + 1, count);
    const auto piece = static_cast<int64_t>(ticket & kClosed);
    if (piece >= (last - first + grain - 1) / grain) return done;
    // Taking a piece proves that the job above is this generation's and stays until it is done.
    if (!next.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    const int64_t begin = first + piece * grain, end = std::min(begin + grain, last);
    call(context, begin, end, thread);
    done += end - begin;
    ticket = next.load(std::memory_order_acquire);
  }
}

void ThreadPool::worker(int thread) {
  uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    uint32_t generation;
    while ((generation = generation_.load(std::memory_order_acquire)) == seen) {
      if (++spins < kSpins) {
        pause();
      } else {
        std::unique_lock<std::mutex> lock(sleep_);
        ++sleepers_;
        awake_.wait(lock, [&] { return generation_.load() != seen; });
        --sleepers_;
      }
    }
    if (stop_.load()) return;
    seen = generation;
    take_pieces(generation, thread);
  }
}

}  // namespace satchel
