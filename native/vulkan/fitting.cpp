#include "fitting.h"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace satchel::vulkan {

namespace {

constexpr uint64_t kPageRows = 64;  // of the caches
// What of a device's memory the caches may take, beside weights and arena; and what weights may,
// where not all of them fit.
constexpr double kCacheShare = 0.5, kWeightShare = 0.45;

uint64_t share_of(uint64_t memory, double share) {
  return static_cast<uint64_t>(static_cast<double>(memory) * share);
}

}  // namespace

int64_t layer_of(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (end > begin && end - begin < 9 &&
        std::all_of(name.begin() + static_cast<ptrdiff_t>(begin),
                    name.begin() + static_cast<ptrdiff_t>(end), is_digit))
      return std::strtoll(name.c_str() + begin, nullptr, 10);
    begin = end + 1;
  }
  return -1;
}

FittingLayers fitting_layers(const Program& program, uint64_t memory_left) {
  std::map<int64_t, uint64_t> layers;
  FittingLayers fitting{0, 0, 0};
  for (const WeightEntry& weight : program.file().weights()) {
    // What other targets compiled lies among the weights as plain bytes.
    if (weight.kind == WeightKind::u8) continue;
    const uint64_t bytes = weight.codes_size + weight.scales_size;
    layers[layer_of(weight.name)] += bytes;
    fitting.weight_bytes += bytes;
  }
  fitting.all = layers.empty() ? 0 : layers.rbegin()->first + 1;
  uint64_t room = share_of(memory_left, kWeightShare);
  if (room < layers[-1]) return fitting;
  room -= layers[-1];
  for (auto layer = layers.find(0);
       layer != layers.end() && layer->first == fitting.count && layer->second <= room; ++layer) {
    room -= layer->second;
    ++fitting.count;
  }
  return fitting;
}

uint64_t cache_bytes(const Program& program, uint64_t largest_binding, uint64_t memory_left) {
  uint64_t largest = 0, all = 0;
  for (const StateInfo& state : program.states()) {
    if (!state.is_cache) continue;
    const uint64_t page = state.bytes / static_cast<uint64_t>(state.shape[1]) * kPageRows;
    largest = std::max(largest, page);
    all += page;
  }
  if (all == 0) return 0;
  const uint64_t pages =
      std::min(largest_binding / largest, share_of(memory_left, kCacheShare) / all);
  return std::max<uint64_t>(pages, 1) * all;
}

}  // namespace satchel::vulkan
