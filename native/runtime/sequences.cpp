#include "sequences.h"

#include <algorithm>
#include <utility>

#include "../kernels/kernels.h"
#include "errors.h"

namespace satchel {

namespace {

constexpr size_t kMostSequences = 1 << 16;
constexpr int64_t kMostPages = int64_t{1} << 30;  // so that numbers of rows and pages are int32

int64_t pages_for(int64_t rows) { return (rows + kKeyBlock - 1) / kKeyBlock; }

}  // namespace

Sequences::Sequences(const std::vector<StateInfo>& states, uint64_t most_bytes,
                     const MakeMemory& make)
    : caches_(states.size()) {
  uint64_t bytes = 0;  // of a page in all caches; each is at most kMaxBytes, and there are few
  for (size_t i = 0; i < states.size(); ++i) {
    const StateInfo& state = states[i];
    if (!state.is_cache) continue;
    Cache& cache = caches_[i];
    cache.heads = state.shape[0];
    cache.row_bytes = static_cast<uint64_t>(state.shape[2]) * dtype_size(state.dtype);
    cache.page_bytes = static_cast<uint64_t>(cache.heads * kKeyBlock) * cache.row_bytes;
    bytes = std::min(bytes + cache.page_bytes, kMaxBytes);
    context_ = std::max(context_, state.shape[1]);
  }
  if (bytes == 0) return;
  most_pages_ = std::clamp<int64_t>(static_cast<int64_t>(most_bytes / bytes), 1, kMostPages);
  for (size_t i = 0; i < states.size(); ++i) {
    if (caches_[i].page_bytes != 0)
      caches_[i].memory = make(i, static_cast<uint64_t>(most_pages_) * caches_[i].page_bytes);
  }
  open();  // the one of callers that name none
}

const Sequences::Sequence& Sequences::known(int32_t sequence) const {
  if (sequence < 0 || static_cast<size_t>(sequence) >= sequences_.size() ||
      !sequences_[static_cast<size_t>(sequence)].open) {
    throw ExecutionError("there is no sequence " + std::to_string(sequence));
  }
  return sequences_[static_cast<size_t>(sequence)];
}

Sequences::Sequence& Sequences::known(int32_t sequence) {
  return const_cast<Sequence&>(std::as_const(*this).known(sequence));
}

int32_t Sequences::open() {
  if (most_pages_ == 0)
    throw ExecutionError("this program keeps no caches, so it has no sequences");
  const auto unused =
      std::find_if(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return !s.open; });
  if (unused == sequences_.end() && sequences_.size() >= kMostSequences) {
    throw ExecutionError("there are too many sequences");
  }
  Sequence& made = unused == sequences_.end() ? sequences_.emplace_back() : *unused;
  made.open = true;
  return static_cast<int32_t>(&made - sequences_.data());
}

int32_t Sequences::fork(int32_t from, int64_t rows) {
  pages(from, rows);  // or throws
  const int32_t made = open();
  const std::vector<int32_t>& theirs = known(from).pages;
  std::vector<int32_t>& mine = known(made).pages;
  mine.assign(theirs.begin(), theirs.begin() + pages_for(rows));
  for (const int32_t page : mine) ++references_[static_cast<size_t>(page)];
  return made;
}

void Sequences::truncate(int32_t sequence, int64_t rows) {
  std::vector<int32_t>& mine = known(sequence).pages;
  const auto kept = static_cast<size_t>(pages_for(std::max<int64_t>(rows, 0)));
  while (mine.size() > kept) {
    release(mine.back());
    mine.pop_back();
  }
}

void Sequences::close(int32_t sequence) {
  truncate(sequence, 0);
  known(sequence).open = false;
}

void Sequences::release(int32_t page) {
  if (--references_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

int32_t Sequences::take_page() {
  int32_t page;
  if (free_.empty()) {
    page = static_cast<int32_t>(references_.size());
    references_.push_back(0);
  } else {
    page = free_.back();
    free_.pop_back();
  }
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void Sequences::make_writable(int32_t sequence, int64_t first, int64_t count) {
  std::vector<int32_t>& mine = known(sequence).pages;
  if (first < 0 || count < 0 || first + count > context_) {
    throw ExecutionError("the tokens " + std::to_string(first) + " to " +
                         std::to_string(first + count - 1) + " do not fit in a context of " +
                         std::to_string(context_));
  }
  const int64_t begin = first / kKeyBlock, end = pages_for(first + count);
  const auto there = static_cast<int64_t>(mine.size());
  const auto is_shared = [&](int64_t i) {
    return references_[static_cast<size_t>(mine[static_cast<size_t>(i)])] > 1;
  };
  int64_t wanted = std::max<int64_t>(end - there, 0);
  for (int64_t i = begin; i < std::min(end, there); ++i) wanted += is_shared(i);
  if (wanted == 0) return;
  const int64_t left =
      most_pages_ - static_cast<int64_t>(references_.size()) + static_cast<int64_t>(free_.size());
  if (wanted > left) {
    throw CacheFullError("the cache is full: all of its " + std::to_string(most_pages_) +
                         " pages of " + std::to_string(kKeyBlock) + " tokens are in use");
  }
  for (int64_t i = begin; i < std::min(end, there); ++i) {
    if (!is_shared(i)) continue;
    int32_t& page = mine[static_cast<size_t>(i)];
    const int32_t copy = take_page();
    for (const Cache& cache : caches_) {
      if (cache.page_bytes == 0) continue;
      cache.memory->copy(static_cast<uint64_t>(page) * cache.page_bytes,
                         static_cast<uint64_t>(copy) * cache.page_bytes, cache.page_bytes);
    }
    release(page);
    page = copy;
  }
  while (static_cast<int64_t>(mine.size()) < end) mine.push_back(take_page());
}

const int32_t* Sequences::pages(int32_t sequence, int64_t rows) const {
  const std::vector<int32_t>& mine = known(sequence).pages;
  if (rows < 0 || rows > static_cast<int64_t>(mine.size()) * kKeyBlock) {
    throw ExecutionError("the sequence " + std::to_string(sequence) + " has no " +
                         std::to_string(rows) + " tokens in the cache");
  }
  return mine.data();
}

namespace {

// Calls copy(row of the page's memory, row of the array, rows) for the pieces that lie together.
template <typename Copy>
void each_piece(const int32_t* pages, int64_t heads, int64_t rows, Copy copy) {
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t row = 0; row < rows; row += kKeyBlock) {
      copy((int64_t{pages[row / kKeyBlock]} * heads + head) * kKeyBlock, head * rows + row,
           std::min(kKeyBlock, rows - row));
    }
  }
}

}  // namespace

void Sequences::read(size_t state, int32_t sequence, int64_t rows, uint8_t* to) const {
  const Cache& cache = caches_.at(state);
  const size_t size = cache.row_bytes;
  each_piece(pages(sequence, rows), cache.heads, rows, [&](int64_t in, int64_t out, int64_t count) {
    cache.memory->read(static_cast<size_t>(in) * size, static_cast<size_t>(count) * size,
                       to + static_cast<size_t>(out) * size);
  });
}

void Sequences::write(size_t state, int32_t sequence, int64_t rows, const uint8_t* from) {
  make_writable(sequence, 0, rows);
  const Cache& cache = caches_.at(state);
  const size_t size = cache.row_bytes;
  each_piece(pages(sequence, rows), cache.heads, rows, [&](int64_t in, int64_t out, int64_t count) {
    cache.memory->write(static_cast<size_t>(in) * size, static_cast<size_t>(count) * size,
                        from + static_cast<size_t>(out) * size);
  });
}

CacheUsage Sequences::usage() const {
  CacheUsage usage;
  usage.pages = static_cast<int64_t>(references_.size() - free_.size());
  usage.most_pages = most_pages_;
  for (const Cache& cache : caches_) usage.page_bytes += cache.page_bytes;
  usage.sequences =
      std::count_if(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return s.open; });
  return usage;
}

}  // namespace satchel
