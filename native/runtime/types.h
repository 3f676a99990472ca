// Element types and the checked arithmetic that sizes from a file go through.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace satchel {

enum class DType : uint8_t { f32 = 0, f16 = 1, i32 = 2, i64 = 3, i8 = 4, u8 = 5, boolean = 6 };
inline constexpr uint8_t kDTypeCount = 7;
inline constexpr size_t kMaxRank = 8;
inline constexpr int64_t kMaxDim = int64_t{1} << 40;
inline constexpr uint64_t kMaxBytes = uint64_t{1} << 46;

inline size_t dtype_size(DType dtype) {
  constexpr size_t sizes[kDTypeCount] = {4, 2, 4, 8, 1, 1, 1};
  return sizes[static_cast<size_t>(dtype)];
}

inline const char* dtype_name(DType dtype) {
  constexpr const char* names[kDTypeCount] = {"f32", "f16", "i32", "i64", "i8", "u8", "bool"};
  return names[static_cast<size_t>(dtype)];
}

inline bool is_whole(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

// a * b, or nothing if it passes kMaxBytes.
inline std::optional<uint64_t> checked_product(uint64_t a, uint64_t b) {
  uint64_t result;
  if (__builtin_mul_overflow(a, b, &result) || result > kMaxBytes) return std::nullopt;
  return result;
}

// The bytes of a tensor, or nothing if they pass kMaxBytes.
inline std::optional<uint64_t> tensor_bytes(DType dtype, const std::vector<int64_t>& shape) {
  std::optional<uint64_t> bytes = dtype_size(dtype);
  for (const int64_t dim : shape) {
    bytes = checked_product(*bytes, static_cast<uint64_t>(dim));
    if (!bytes) return std::nullopt;
  }
  return bytes;
}

inline std::string shape_text(const int64_t* dims, size_t rank) {
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

}  // namespace satchel
