// What the instruction sets share among themselves; not for users of the library.
//
// A file compiled for more than the baseline must not emit a function that other files could be
// linked to: helpers here and in the .inl files have internal linkage, and no std:: templates are
// used there.
#pragma once

#include "kernels.h"

#if defined(__clang__)
#define SATCHEL_UNROLL _Pragma("unroll")
#else
#define SATCHEL_UNROLL _Pragma("GCC unroll 16")
#endif

namespace satchel {

// std::min and std::max for such files.
template <class T>
static inline T lesser(T a, T b) {
  return b < a ? b : a;
}
template <class T>
static inline T greater(T a, T b) {
  return a < b ? b : a;
}

extern const KernelTable portable_table;

// Shared by every table: an embedding lookup is too short to gain from wide registers.
void unpack_row(const PackedMatrix& w, int64_t row, float* out);

#ifdef SATCHEL_X86_64
extern const KernelTable avx2_table;
extern const KernelTable avx512_table;

// The AMX table is the AVX-512 one with these in it.
void amx_linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                   int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);
void amx_linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                   int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);
void amx_linear_i8(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                   const IntegerResult& result, int64_t tile_begin, int64_t tile_end);
void amx_conv_i8(const CodeWindows& x, const IntegerMatrix& w, const IntegerResult& result,
                 int64_t tile_begin, int64_t tile_end);
void amx_attention(const AttentionArgs& args, int64_t kv_head, int64_t query_begin,
                   int64_t query_end, float* scratch);
// Whether kernels ask for a single row's codes ahead: on Intel, or as SATCHEL_READ_AHEAD says (0 or
// 1).
bool asks_ahead();
// One tile product of bytes, and one of bfloat16, compared with plain arithmetic. May fault where
// AMX does not work.
bool amx_self_test();
bool amx_bf16_self_test();
#endif

#ifdef SATCHEL_AARCH64
struct ArmFeatures {
  bool dotprod = false, i8mm = false;
};
// What the operating system says of the CPU. NEON itself is part of every 64-bit Arm.
ArmFeatures arm_features();

extern const KernelTable neon_table;

// The dotprod and i8mm tables are the NEON one with these in it.
void dotprod_linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                       int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);
void dotprod_linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                       int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);
void dotprod_linear_k(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                      int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);
void dotprod_linear_i8(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                       const IntegerResult& result, int64_t tile_begin, int64_t tile_end);
void dotprod_conv_i8(const CodeWindows& x, const IntegerMatrix& w, const IntegerResult& result,
                     int64_t tile_begin, int64_t tile_end);
void i8mm_linear_q4(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                    int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);
void i8mm_linear_q8(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                    int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);
void i8mm_linear_k(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                   int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);
void i8mm_linear_i8(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                    const IntegerResult& result, int64_t tile_begin, int64_t tile_end);
void i8mm_conv_i8(const CodeWindows& x, const IntegerMatrix& w, const IntegerResult& result,
                  int64_t tile_begin, int64_t tile_end);
#endif

// Blocks of this many rows or queries and more may be computed in another order than a single one.
constexpr int64_t kLongBlock = 64;
static inline bool is_long(const QuantizedRows& x) { return x.rows / x.digits >= kLongBlock; }

// Attention works on kKeyBlock keys at a time, in blocks that start at multiples of it, so that
// a query's result does not depend on which other queries are computed with it.
static inline int32_t key_in_block(int64_t key, int64_t keys = kKeyBlock) {
  return static_cast<int32_t>(key < 0 ? 0 : key < keys ? key : keys);
}
// The keys [oldest, newest) are those that a query sees.
static inline int64_t newest_key(const AttentionArgs& args, int64_t query) {
  if (args.level) return args.position + 1;
  return args.position + (args.parents ? args.depths[query] : query) + 1;
}
static inline int64_t oldest_key(const AttentionArgs& args, int64_t query) {
  const int64_t newest = newest_key(args, query);
  return args.window > 0 && newest > args.window ? newest - args.window : 0;
}
// Where a row of a kv head lies, and those behind it up to the end of its block.
template <class Cache>
static inline const Cache* cache_row(const AttentionArgs& args, const void* cache, int64_t kv_head,
                                     int64_t row) {
  const int64_t block = row / kKeyBlock;
  return static_cast<const Cache*>(cache) + kv_head * args.head_stride +
         (args.pages ? args.pages[block] : block) * args.block_stride +
         row % kKeyBlock * cache_row_size(args);
}
// Whether another order of computing pays, and gives the right bits.
static inline bool is_long_line(const AttentionArgs& args) {
  return args.queries >= kLongBlock && !args.byte_cache && !args.parents && !args.level;
}

// Query rows (query × head of the group) that pass over the cache together.
constexpr int64_t kQueryRows = 32;
// Of those, at most this many share a register block.
constexpr int64_t kMaxRegisterRows = 4;
// What attention keeps for each row: its range of keys, maximum, total and rescaling.
constexpr int64_t kRowStateFloats = 5;

constexpr int64_t kLongRows = 6;       // that share a register block
constexpr int64_t kLongRowFloats = 4;  // what is kept for each row, beside its total in 16 lanes
// The rows of long blocks that pass over the cache together, and the size their heads are padded
// to.
static inline int64_t long_queries(int64_t heads_per_kv) {
  return heads_per_kv >= 128 ? 1 : 128 / heads_per_kv;
}
static inline int64_t long_rows(int64_t heads_per_kv) {
  return (long_queries(heads_per_kv) * heads_per_kv + kLongRows - 1) / kLongRows * kLongRows;
}
static inline int64_t long_dim(int64_t dim) { return (dim + 63) / 64 * 64; }

// The same where tiles multiply, so many rows by so many keys in a step; the keys whose tiles are
// kept, 128 kB of them, and the floats of all that: see Space in attention_tiles.inl.
constexpr int64_t kTileStepRows = 32, kTileStepKeys = 32;
static inline int64_t tile_queries(int64_t heads_per_kv) {
  return heads_per_kv >= 256 ? 1 : 256 / heads_per_kv;
}
static inline int64_t tile_rows(int64_t heads_per_kv) {
  return (tile_queries(heads_per_kv) * heads_per_kv + kTileStepRows - 1) / kTileStepRows *
         kTileStepRows;
}
static inline int64_t tile_dim(int64_t dim) { return (dim + 31) / 32 * 32; }
static inline int64_t tile_keys(int64_t padded) {
  const int64_t steps = 1024 / padded;
  return (steps > 2 ? steps : 2) * kTileStepKeys;  // one is multiplied while the next is made
}
static inline int64_t tile_scratch(int64_t heads_per_kv, int64_t dim) {
  const int64_t rows = tile_rows(heads_per_kv), padded = tile_dim(dim);
  return rows * (padded * 5 / 2 + 4) + tile_keys(padded) * padded * 2 + 5120;
}

static inline int64_t queries_per_pass(int64_t heads_per_kv) {
  return heads_per_kv >= kQueryRows ? 1 : kQueryRows / heads_per_kv;
}

static inline int64_t padded_dim(int64_t dim) { return (dim + 15) / 16 * 16; }

}  // namespace satchel
