// cache_write, cache_move and attention. The host knows the pages and hands shaders their numbers.
#include <algorithm>
#include <map>

#include "../runtime/errors.h"
#include "../runtime/step_runs.h"
#include "attention_step.h"
#include "cache_rows.h"

namespace satchel::vulkan {

namespace {

constexpr int64_t kMostDim = 512, kBlock = 256;  // of attention.comp
constexpr int64_t kFewHeads = 1024;              // of all tokens: with more no device is idle

void reserve_pages(const Tensor& cache, int64_t most, Work& work) {
  if (!cache.paged) return;
  const Rows rows(cache);
  work.state(cache).reserve(static_cast<uint64_t>(most + 1) * rows.block_rows * rows.words * 4);
}

// The pages of a sequence's first rows.
std::vector<uint32_t> pages_of(const Tensor& cache, int32_t sequence, int64_t rows, Work& work) {
  const auto count = static_cast<size_t>((rows + kKeyBlock - 1) / kKeyBlock);
  std::vector<uint32_t> pages(count);
  if (cache.paged) {
    const int32_t* theirs = work.sequences->pages(sequence, rows);
    for (size_t i = 0; i < count; ++i) pages[i] = static_cast<uint32_t>(theirs[i]);
  } else {
    require_only_sequence(sequence);
    for (size_t i = 0; i < count; ++i) pages[i] = static_cast<uint32_t>(i);
  }
  return pages;
}

std::string refuses_cache(const Tensor& cache) {
  const auto bytes = static_cast<size_t>(cache.shape[2]) * dtype_size(cache.dtype);
  if (bytes % 4 != 0) return "a row of the cache is no whole number of words";
  return {};
}

std::string refuses_step(const NodeCall& call, size_t first) {
  for (size_t i = first; i < call.inputs.size(); ++i) {
    if (call.has(i) && !is_input(call.in(i)))
      return "the GPU takes positions only from the method's inputs";
  }
  return {};
}

// --- cache_write(cache, x, sequence, position, parents?) ---

std::string refuses_cache_write(const NodeCall& call, const DeviceInfo&) {
  if (call.in(1).shape[0] > kMostGroups) return "the GPU takes at most 65535 tokens";
  const std::string reason = refuses_cache(call.in(0));
  return reason.empty() ? refuses_step(call, 2) : reason;
}

void prepare_cache_write(const NodeCall& call, Work& work) {
  const Tensor& cache = call.in(0);
  const HostTables::Key key = key_of(call, 2, cache);
  const HostTables::Entry* found = work.tables.find(kRowsToWrite, key);
  if (!found) {
    // Pages are made for all of them first: what is shared is copied before anything is written.
    std::vector<Run> runs;
    each_run(call.in(2), call.in(3), call.has(4), [&](Run run) {
      run.items = run.level ? 1 : run.count;  // of several at one position the last one stays
      require_rows(run.position, run.items, cache.shape[1]);
      if (cache.paged) work.sequences->make_writable(run.sequence, run.position, run.items);
      runs.push_back(run);
    });
    std::map<std::pair<uint32_t, uint32_t>, uint32_t>
        tokens;  // by page and row; the last one stays
    int64_t most = -1;
    for (const Run& run : runs) {
      const std::vector<uint32_t> pages =
          pages_of(cache, run.sequence, run.position + run.items, work);
      for (int64_t i = 0; i < run.items; ++i) {
        const int64_t row = run.position + i;
        const uint32_t page = pages[static_cast<size_t>(row / kKeyBlock)];
        tokens[{page, word(row % kKeyBlock)}] = word(run.first + run.count - run.items + i);
        most = std::max<int64_t>(most, page);
      }
    }
    std::vector<uint32_t> places(2 * static_cast<size_t>(call.in(1).shape[0]), UINT32_MAX);
    for (const auto& [place, token] : tokens)
      places[2 * token] = place.first, places[2 * token + 1] = place.second;
    found = &work.tables.add(kRowsToWrite, key, places.data(), places.size() * 4, most);
  }
  reserve_pages(cache, found->most, work);
}

void record_cache_write(const NodeCall& call, Work& work) {
  const Tensor &cache = call.in(0), &x = call.in(1);
  const HostTables::Entry& entry = *work.tables.find(kRowsToWrite, key_of(call, 2, cache));
  const View from = work.view(x), places = work.recorder.view(work.tables.place(entry)),
             to = work.view(cache);
  const Rows rows(cache);
  const struct {
    uint32_t heads, dim, head_rows, block_rows, x_first, places_first, cache_first;
  } push{word(x.shape[1]), word(x.shape[2]), rows.head_rows, rows.block_rows,
         from.first,       places.first,     to.first};
  work.recorder.dispatch("cache_write", {kind_of(cache)}, {from, places, written(to)}, push,
                         {word(x.shape[1]), word(x.shape[0])});
}

// --- cache_move(cache, rows, sequence, start) ---

std::string refuses_cache_move(const NodeCall& call, const DeviceInfo&) {
  const std::string reason = refuses_cache(call.in(0));
  return reason.empty() ? refuses_step(call, 1) : reason;
}

HostTables::Key moves_key(const NodeCall& call) {
  return {&call.in(1), &call.in(2), &call.in(3), call.in(0).paged ? -1 : call.in(0).shape[1]};
}

void prepare_cache_move(const NodeCall& call, Work& work) {
  const Tensor &cache = call.in(0), &rows = call.in(1);
  const HostTables::Entry* found = work.tables.find("rows to move", moves_key(call));
  if (!found) {
    const int32_t sequence = call.in(2).i32()[0];
    const int64_t count = rows.shape[0], start = call.in(3).i32()[0];
    require_rising_rows(rows.i32(), count, start, cache.shape[1]);
    const int64_t last = count > 0 ? rows.i32()[count - 1] + 1 : 0;
    if (cache.paged) {
      work.sequences->pages(sequence, start + last);  // or it throws
      work.sequences->make_writable(sequence, start, last);
    }
    const std::vector<uint32_t> pages = pages_of(cache, sequence, start + last, work);
    std::vector<uint32_t> items;
    int64_t most = -1;
    for (const uint32_t page : pages) most = std::max<int64_t>(most, page);
    for (int64_t i = 0; i < count; ++i) {
      if (rows.i32()[i] == i) continue;
      for (const int64_t row : {start + rows.i32()[i], start + i}) {
        items.push_back(pages[static_cast<size_t>(row / kKeyBlock)]);
        items.push_back(word(row % kKeyBlock));
      }
    }
    found = &work.tables.add("rows to move", moves_key(call), items.data(), items.size() * 4, most,
                             items.size());
  }
  reserve_pages(cache, found->most, work);
}

void record_cache_move(const NodeCall& call, Work& work) {
  const Tensor& cache = call.in(0);
  const HostTables::Entry& entry = *work.tables.find("rows to move", moves_key(call));
  if (entry.size == 0) return;
  const View to = work.view(cache), items = work.recorder.view(work.tables.place(entry));
  const Rows rows(cache);
  const struct {
    uint32_t words, head_rows, block_rows, count, items_first, cache_first;
  } push{rows.words,  rows.head_rows, rows.block_rows, static_cast<uint32_t>(entry.size / 16),
         items.first, to.first};
  work.recorder.dispatch("cache_move", {}, {written(to), items}, push, {word(cache.shape[0])});
}

// --- attention(q, k, v, sequence, position, parents?) ---

std::string refuses_attention(const NodeCall& call, const DeviceInfo& device) {
  if (!device.features.subgroup_sums) return "the GPU has no sums over subgroups";
  if (call.in(0).shape[0] > kMostGroups) return "the GPU takes at most 65535 tokens";
  if (call.in(0).shape[2] > kMostDim) return "the GPU takes heads of at most 512 numbers";
  if (call.in(0).shape[2] % 2 != 0) return "the GPU takes heads of an even number of numbers";
  for (const size_t i : {1, 2}) {
    const std::string reason = refuses_cache(call.in(i));
    if (!reason.empty()) return reason;
  }
  return refuses_step(call, 3);
}

// Of each token four numbers, then the lists that they point to: see attention.comp.
void prepare_attention(const NodeCall& call, Work& work) {
  const Tensor& k = call.in(1);
  const HostTables::Key key = key_of(call, 3, k);
  const HostTables::Entry* found = work.tables.find(kKeysToSee, key);
  if (!found) {
    const auto tokens = static_cast<size_t>(call.in(0).shape[0]);
    std::vector<uint32_t> numbers(4 * tokens);
    std::vector<int32_t> parents(tokens), depths(tokens);
    int64_t most = -1, most_keys = 0, runs = 0;
    bool is_level = false;
    each_run(call.in(3), call.in(4), call.has(5), [&](const Run& run) {
      const int64_t rows = run.level ? 1 : run.count;
      ++runs, is_level = is_level || run.level;
      require_rows(run.position, rows, k.shape[1]);
      const std::vector<uint32_t> pages = pages_of(k, run.sequence, run.position + rows, work);
      for (const uint32_t page : pages) most = std::max<int64_t>(most, page);
      const auto list = static_cast<uint32_t>(numbers.size());
      numbers.insert(numbers.end(), pages.begin(), pages.end());
      const auto first = static_cast<size_t>(run.first);
      if (call.has(5))
        find_depths(run, call.in(5).i32(), call.in(4).i32(), &parents[first], &depths[first]);
      for (int64_t i = 0; i < run.count; ++i) {
        const auto path = static_cast<uint32_t>(numbers.size());
        uint32_t ancestors = 0, line = word(run.position + (run.level ? 1 : i + 1));
        if (call.has(5)) {
          line = word(run.position);
          for (int64_t at = i; at >= 0; at = parents[first + static_cast<size_t>(at)], ++ancestors)
            numbers.push_back(word(run.position + at));
          std::reverse(numbers.begin() + path, numbers.end());
        }
        most_keys = std::max<int64_t>(most_keys, line + ancestors);
        const uint32_t own[] = {list, line, path, ancestors};
        std::copy_n(own, 4, numbers.begin() + 4 * (run.first + i));
      }
    });
    found = &work.tables.add(kKeysToSee, key, numbers.data(), numbers.size() * 4, most,
                             attention_shape(most_keys, runs == 1 && !is_level && !call.has(5)));
  }
  for (const size_t i : {1, 2}) reserve_pages(call.in(i), found->most, work);
}

const VulkanOp kOps[] = {
    {"cache_write", refuses_cache_write, record_cache_write, prepare_cache_write},
    {"cache_move", refuses_cache_move, record_cache_move, prepare_cache_move},
    {"attention", refuses_attention, record_attention, prepare_attention, attention_scratch, true},
};

}  // namespace

std::span<const VulkanOp> cache_ops() { return kOps; }

}  // namespace satchel::vulkan
