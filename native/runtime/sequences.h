// The sequences of an instance: in which pages of the caches each one's rows lie.
//
// A page has kKeyBlock rows of every cache of the program, under one number. Sequences that begin
// alike share the pages of what they have in common, and a page that is shared is copied when one
// of them writes to it. Pages are given as rows are written, so that memory grows with the texts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "method.h"
#include "state_memory.h"

namespace satchel {

struct CacheUsage {
  int64_t pages = 0, most_pages = 0;
  uint64_t page_bytes = 0;  // of all caches together
  int64_t sequences = 0;
};

class Sequences {
 public:
  // Memory for the pages of a state: its number, and how many bytes.
  using MakeMemory = std::function<std::unique_ptr<StateMemory>(size_t, uint64_t)>;
  // The caches among the states; `most_bytes` is what all their pages may take. A state's memory is
  // [page][heads][kKeyBlock][row].
  Sequences(const std::vector<StateInfo>& states, uint64_t most_bytes, const MakeMemory& make);

  // A new sequence without rows, and one that begins with the first rows of another.
  int32_t open();
  int32_t fork(int32_t from, int64_t rows);
  // Gives back the pages of the rows from `rows` on.
  void truncate(int32_t sequence, int64_t rows);
  void close(int32_t sequence);
  // Empties the sequence of callers that name none, where there are caches.
  void truncate_first() {
    if (most_pages_ > 0) truncate(0, 0);
  }

  // Pages of its own for the rows [first, first + count) of a sequence. Throws ExecutionError when
  // there are none left, and has changed nothing then.
  void make_writable(int32_t sequence, int64_t first, int64_t count);
  // The numbers of the pages of the first `rows` rows. Throws ExecutionError if they are not there.
  const int32_t* pages(int32_t sequence, int64_t rows) const;

  // The rows [0, rows) of a cache as [heads][rows][row], for keeping them elsewhere.
  void read(size_t state, int32_t sequence, int64_t rows, uint8_t* to) const;
  void write(size_t state, int32_t sequence, int64_t rows, const uint8_t* from);

  CacheUsage usage() const;

 private:
  struct Cache {
    std::unique_ptr<StateMemory> memory;
    uint64_t page_bytes = 0;
    int64_t heads = 0;
    uint64_t row_bytes = 0;
  };
  struct Sequence {
    bool open = false;
    std::vector<int32_t> pages;
  };

  const Sequence& known(int32_t sequence) const;
  Sequence& known(int32_t sequence);
  void release(int32_t page);
  int32_t take_page();

  std::vector<Cache> caches_;  // as many as there are states
  int64_t context_ = 0;        // the most rows of a sequence
  int64_t most_pages_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> references_;  // of each page that was ever used
  std::vector<int32_t> free_;        // the latest last: its memory is warm
};

}  // namespace satchel
