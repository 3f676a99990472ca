// What the attention ops share: which rows are the tokens of an entry, their biases, and how keys
// and values become matrices of tiles.
#pragma once

#include <cstring>

#include "cpu_op.h"

namespace satchel {

// Entries of a batch, whose tokens are rows of a matrix.
struct Windows {
  int64_t entries = 0, tokens = 0, heads = 0;  // tokens: queries of an entry
  const int32_t* rows = nullptr;               // [entries][tokens], or null: they are in order
  const float* bias = nullptr;                 // [bias_count][bias_heads][bias_rows][keys], or null
  int64_t bias_count = 1, bias_heads = 1, bias_rows = 1, keys = 0;
  const int32_t* kinds = nullptr;  // which bias an entry has, or null: they repeat
  int64_t kind_count = 1;

  int64_t row(int64_t entry, int64_t token) const {
    const int64_t number = entry * tokens + token;
    return rows ? rows[number] : number;
  }

  const float* bias_row(int64_t entry, int64_t head, int64_t query) const {
    if (!bias) return nullptr;
    const int64_t kind = kinds ? kinds[entry % kind_count] : entry % bias_count;
    const int64_t h = bias_heads == 1 ? 0 : head, r = bias_rows == 1 ? 0 : query;
    return bias + ((kind * bias_heads + h) * bias_rows + r) * keys;
  }
  // From the bias of a query to that of the next.
  int64_t bias_stride() const { return bias_rows == 1 ? 0 : keys; }
};

// Of x [B, T, 3, H, D] with the inputs bias?, rows? and kinds? from place `first` on.
void check_windows(const NodeCall& call, size_t first);
Windows windows_of(const NodeCall& call, size_t first);
// A bias [b, h, t, keys]: b divides the batch, unless kinds choose; h and t are 1 or all.
void check_bias(const NodeCall& call, size_t input, int64_t batch, int64_t heads, int64_t queries,
                int64_t keys, bool chosen = false);
// Throws ExecutionError unless the rows are a permutation and the kinds are those of biases.
void require_rows(const Windows& windows);

inline int64_t whole_tiles(int64_t n) { return (n + kTileRows - 1) / kTileRows * kTileRows; }

// Rows of four-byte units to tiles [rows/16][cols][16], the last one filled up with zeros; every
// unit is xored with `flip`. row(i) is where row i starts.
template <typename Row>
void pack_transposed(int64_t rows, int64_t cols, uint32_t flip, Row row, uint32_t* out) {
  typedef uint32_t V __attribute__((vector_size(16)));
  const V flips = {flip, flip, flip, flip};
  for (int64_t first = 0; first < rows; first += kTileRows, out += cols * kTileRows) {
    const int64_t there = std::min(kTileRows, rows - first);
    for (int64_t quarter = 0; quarter < kTileRows; quarter += 4) {
      const uint8_t* from[4];
      for (int64_t i = 0; i < 4; ++i) {
        from[i] = quarter + i < there ? reinterpret_cast<const uint8_t*>(row(first + quarter + i))
                                      : nullptr;
      }
      uint32_t* to = out + quarter;
      int64_t c = 0;
      for (; c + 4 <= cols && from[3]; c += 4) {
        V v[4];
        for (int i = 0; i < 4; ++i) {
          std::memcpy(&v[i], from[i] + c * 4, 16);
          v[i] ^= flips;
        }
        const V ab = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5),
                cd = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
        const V ef = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7),
                gh = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
        const V transposed[4] = {__builtin_shufflevector(ab, cd, 0, 1, 4, 5),
                                 __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
                                 __builtin_shufflevector(ef, gh, 0, 1, 4, 5),
                                 __builtin_shufflevector(ef, gh, 2, 3, 6, 7)};
        for (int i = 0; i < 4; ++i) std::memcpy(to + (c + i) * kTileRows, &transposed[i], 16);
      }
      for (; c < cols; ++c) {
        for (int64_t i = 0; i < 4; ++i) {
          uint32_t unit = 0;
          if (from[i]) {
            std::memcpy(&unit, from[i] + c * 4, 4);
            unit ^= flip;
          }
          to[c * kTileRows + i] = unit;
        }
      }
    }
  }
}

}  // namespace satchel
