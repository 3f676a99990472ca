// A fixed set of threads that share out ranges of work. Waiting threads spin for a moment, because
// the next piece of work usually comes within microseconds, and then sleep.
//
// A pool serves all instances of a process that want as many threads. Where two of them have work
// at the same time, the one that finds the threads busy does its piece alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "process.h"

namespace satchel {

class ThreadPool {
 public:
  // The process's pool of so many threads.
  static std::shared_ptr<ThreadPool> shared(int threads);

  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Whether this process has its threads. Without them it must not be used: one may have held the
  // lock of those that sleep, or not yet have left the others, when the process was forked.
  bool is_ours() const { return process_ == this_process(); }

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // The end of the share of [0, count) that begins at or before `at`: what a thread goes on to.
  int64_t share_end(int64_t at, int64_t count) const {
    size_t share = 0;
    while (share_begin(share + 1, count) <= at) ++share;
    return share_begin(share + 1, count);
  }

  // Calls work(begin, end, thread) for pieces of [0, count) of at most `grain` each, on all threads
  // (one thread alone takes all at once), and returns when all pieces are done. The caller is
  // thread 0. `work` must not throw.
  //
  // Each thread begins with a share of its own, the same part of every loop whatever its grain:
  // rows of an image that it has just written are in its cache when the next layer reads them. Then
  // it helps with the shares of others, and nobody waits for a thread that has taken no piece: on a
  // busy machine a worker may not get a core for milliseconds.
  template <typename Work>
  void parallel_for(int64_t count, int64_t grain, const Work& work) {
    std::unique_lock<std::mutex> alone(busy_, std::defer_lock);
    if (count <= grain || workers_.empty() || !alone.try_lock()) {
      if (count > 0) work(int64_t{0}, count, 0);
      return;
    }
    run([](const void* context, int64_t begin, int64_t end,
           int thread) { (*static_cast<const Work*>(context))(begin, end, thread); },
        &work, count, grain);
  }

 private:
  using Call = void (*)(const void* context, int64_t begin, int64_t end, int thread);

  void run(Call call, const void* context, int64_t count, int64_t grain);
  void take_pieces(uint32_t generation, int thread);
  int64_t take_share(uint32_t generation, int thread, size_t share);
  void worker(int thread);
  void wake();
  void stop();

  const int process_ = this_process();
  std::vector<std::thread> workers_;
  std::mutex busy_;  // held by the caller whose job it is

  // The job. A late worker may read these while the next job is being written, so they are atomic;
  // what it read is used only if it then takes a piece, which fails once the job is closed.
  std::atomic<Call> call_{nullptr};
  std::atomic<const void*> context_{nullptr};
  std::atomic<int64_t> count_{0}, grain_{1};

  // The job's generation in the upper half and the share's next piece in the lower; all ones:
  // closed.
  struct alignas(64) Share {
    std::atomic<uint64_t> ticket{kClosed};
  };
  static constexpr size_t kMostShares =
      8;  // neighbours have one together where there are more threads
  std::vector<Share> shares_;
  int64_t share_begin(size_t share, int64_t count) const {
    return count * static_cast<int64_t>(share) / static_cast<int64_t>(shares_.size());
  }
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stop_{false};

  // Of threads that sleep until the generation changes. Not std::atomic's own wait: without futexes
  // (Windows, macOS) some libraries lose a notification there.
  std::mutex sleep_;
  std::condition_variable awake_;
  std::atomic<int> sleepers_{0};

  static constexpr uint64_t kClosed = 0xFFFFFFFF;
};

// The number of cores that this process may use.
int default_threads();

}  // namespace satchel
