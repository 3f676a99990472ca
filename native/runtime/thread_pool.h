// A fixed set of threads that share out ranges of work. Waiting threads spin for a moment, because
// the next piece of work usually comes within microseconds, and then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace satchel {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(begin, end, thread) for pieces of [0, count) of at most `grain` each, on all threads,
  // and returns when all are done. The caller is thread 0. `work` must not throw.
  template <typename Work>
  void parallel_for(int64_t count, int64_t grain, const Work& work) {
    if (count <= grain || workers_.empty()) {
      if (count > 0) work(int64_t{0}, count, 0);
      return;
    }
    run({[](const void* context, int64_t begin, int64_t end, int thread) {
           (*static_cast<const Work*>(context))(begin, end, thread);
         },
         &work, count, grain});
  }

 private:
  struct Job {
    void (*call)(const void* context, int64_t begin, int64_t end, int thread) = nullptr;
    const void* context = nullptr;
    int64_t count = 0;
    int64_t grain = 1;
  };

  void run(const Job& job);
  void take_pieces(int thread);
  void worker(int thread);

  std::vector<std::thread> workers_;
  Job job_;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
};

// The number of cores that this process may use.
int default_threads();

}  // namespace satchel
