// What a program says of its compiled graphs: docs/qnn.md, "What a file holds for the NPU".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace satchel::qnn {

enum class CodeType : uint8_t { u8, u16, f16 };

// An input or output of a graph. A number is (code - zero_point) * scale, and a float is itself.
struct CodedTensor {
  std::string name;
  std::vector<int64_t> shape;
  CodeType type = CodeType::u8;
  float scale = 1;
  int32_t zero_point = 0;

  size_t numbers() const;
  size_t code_bytes() const { return type == CodeType::u8 ? 1 : 2; }
  size_t bytes() const { return numbers() * code_bytes(); }
  bool operator==(const CodedTensor&) const = default;

  // Codes of numbers as Python's ActivationEncoding makes them, and back.
  void quantize(const float* numbers, size_t count, uint8_t* codes) const;
  void dequantize(const uint8_t* codes, size_t count, float* numbers) const;
  // The codes of a mask: what adds nothing, and what hides a slot.
  uint16_t seen_code() const;
  uint16_t hidden_code() const;
  void fill(uint16_t code, uint8_t* codes, size_t count) const;
};

struct Mask {
  std::string name;
  int64_t window;  // a token sees the last so many positions; 0: all
};

struct Cache {
  std::string name, new_slots;
  size_t axis;  // of the slots
};

struct Shard {
  std::string model;  // the file that names binary and graph
  std::vector<CodedTensor> inputs, outputs;
};

struct CompiledMethod {
  std::string name, before;  // `before` is the program's method that the CPU runs first
  int64_t tokens = 0, context = 0;
  std::vector<Mask> masks;
  std::vector<Cache> caches;
  std::vector<Shard> shards;
  std::vector<std::string> logits;  // parts, to be put beside each other

  const CodedTensor* find(std::string_view tensor) const;  // null if there is none
};

struct Manifest {
  std::string target;
  bool shares_weights = false;  // each shard is one binary for all methods
  bool same_bits = false;       // of a token alone and in a block
  std::vector<CompiledMethod> methods;
  std::vector<std::pair<std::string, std::string>> provider;  // options of Qualcomm's provider

  const CompiledMethod* find(std::string_view method) const;  // null if there is none
};

// Reads what may come from anyone: every field is checked. Throws FormatError.
Manifest read_manifest(std::string_view text);

}  // namespace satchel::qnn
