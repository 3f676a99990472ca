// Where the rows of a cache lie, for shaders.
#pragma once

#include <bit>

#include "op.h"

namespace satchel::vulkan {

// The kinds of rows of shaders/cache.glsl.
inline uint32_t kind_of(const Tensor& cache) {
  return cache.dtype == DType::f32 ? 0 : cache.dtype == DType::f16 ? 1 : 2;
}

// A row is at page * block_rows + head * head_rows + (its number within the page). A cache that is
// a plain array has its pages one behind the other.
struct Rows {
  uint32_t head_rows, block_rows, words;

  explicit Rows(const Tensor& cache)
      : head_rows(word(cache.paged ? kKeyBlock : cache.shape[1])),
        block_rows(word(cache.paged ? cache.shape[0] * kKeyBlock : kKeyBlock)),
        words(word(cache.shape[2] * static_cast<int64_t>(dtype_size(cache.dtype)) / 4)) {}
};

// The table of cache_write: of each token the page and the row in it.
inline constexpr const char* kRowsToWrite = "rows to write";
// That of attention: see attention.comp.
inline constexpr const char* kKeysToSee = "keys to see";
inline constexpr int64_t kAttentionBlock = 256;
// What commands depend on: the number of blocks of keys, or a little more, and whether all tokens
// follow each other in one sequence.
inline constexpr uint64_t kOneLine = uint64_t{1} << 32;
inline uint64_t attention_shape(int64_t keys, bool one_line) {
  const auto blocks = static_cast<uint64_t>(keys + kAttentionBlock - 1) / kAttentionBlock;
  return std::bit_ceil(blocks) | (one_line ? kOneLine : 0);
}

// Of a table that steps with the same sequences, positions and parents share; `first` is the number
// of the input with the sequences.
inline HostTables::Key key_of(const NodeCall& call, size_t first, const Tensor& cache) {
  return {&call.in(first), &call.in(first + 1), call.has(first + 2) ? &call.in(first + 2) : nullptr,
          cache.paged ? -1 : cache.shape[1]};
}

}  // namespace satchel::vulkan
