// How gemm_many.comp shares a layer out among workgroups.
#pragma once

#include <cstdint>

namespace satchel::vulkan {

struct ManyBlocks {
  uint32_t tokens, rows;  // of a workgroup
  uint32_t columns;       // of a step
  uint32_t splits;        // of all columns, among workgroups
  uint32_t runs;          // of columns that have a step of scales, in a split at most
};

// The fastest for so many tokens, rows and columns. The rows of a product are those of both
// matrices; `may_split`: whether results of parts of the columns can be added up.
ManyBlocks many_blocks(int64_t tokens, int64_t rows, int64_t cols, bool is_product, bool may_split);

}  // namespace satchel::vulkan
