// A trie where it lies in a file: nodes of (first edge, value), edges of (byte, node).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace satchel::llm {

inline constexpr uint32_t kNone = 0xFFFFFFFF;

class Trie {
 public:
  Trie() = default;
  Trie(std::span<const uint32_t> nodes, std::span<const uint32_t> edges)
      : nodes_(nodes), edges_(edges) {}

  // Whether every edge leads on (never back), so that no walk is longer than its text, and every
  // value is below `values`.
  bool valid(uint64_t values) const;
  bool empty() const { return edges_.empty(); }

  // Calls found(length, value) for every word that the text begins with, the shortest first.
  template <typename Found>
  void prefixes(std::string_view text, const Found& found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == kNone) return;
      if (nodes_[2 * node + 1] != kNone) found(i + 1, nodes_[2 * node + 1]);
    }
  }

  bool begins_with(uint8_t byte) const { return !empty() && child(0, byte) != kNone; }

 private:
  uint32_t child(uint32_t node, uint8_t byte) const {
    uint32_t low = nodes_[2 * node], high = nodes_[2 * node + 2];
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (edges_[2 * middle] < byte) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low == nodes_[2 * node + 2] || edges_[2 * low] != byte) return kNone;
    return edges_[2 * low + 1];
  }

  std::span<const uint32_t> nodes_, edges_;
};

inline bool Trie::valid(uint64_t values) const {
  if (nodes_.empty() && edges_.empty()) return true;
  if (nodes_.size() < 4 || nodes_.size() % 2 != 0 || edges_.size() % 2 != 0) return false;
  const size_t nodes = nodes_.size() / 2 - 1, edges = edges_.size() / 2;
  if (nodes_[0] != 0 || nodes_[2 * nodes] != edges) return false;
  for (size_t n = 0; n < nodes; ++n) {
    const uint32_t first = nodes_[2 * n], last = nodes_[2 * n + 2];
    if (first > last || last > edges) return false;
    if (nodes_[2 * n + 1] != kNone && nodes_[2 * n + 1] >= values) return false;
    for (uint32_t e = first; e < last; ++e) {
      if (edges_[2 * e] > 255 || edges_[2 * e + 1] <= n || edges_[2 * e + 1] >= nodes) return false;
    }
  }
  return true;
}

}  // namespace satchel::llm
