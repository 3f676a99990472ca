// Opens a program file and proves its structure before anything is used. docs/format.md is the
// spec.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../kernels/kernels.h"
#include "memory.h"
#include "sha256.h"
#include "types.h"

namespace satchel {

enum class SectionKind : uint32_t {
  tokenizer = 1,
  methods = 2,
  weight_index = 3,
  weights = 4,
  metadata = 5,
  text = 6  // the compiled tokenizer; not in every file
};

struct SectionRecord {
  SectionKind kind;
  std::string name;
  uint64_t offset;
  uint64_t size;
  Digest digest;
};

enum class WeightKind : uint8_t {
  f32 = 0,
  f16 = 1,
  i32 = 2,
  u8 = 3,
  boolean = 4,
  i64 = 5,
  matrix_f32 = 16,
  matrix_f16 = 17,
  matrix_q4 = 18,
  matrix_q8 = 19,
  matrix_lpbq4 = 20,
  matrix_q4_min = 21,
  matrix_q4_offset = 22,
  matrix_q8_offset = 23,
  matrix_i8 = 24,
  matrix_q4_steps = 25,
  matrix_q5 = 26,
  matrix_q5_min = 27,
  matrix_q4_k = 28,
  matrix_q5_k = 29,
  matrix_q6_k = 30,
};

struct WeightEntry {
  std::string name;
  WeightKind kind;
  std::vector<int64_t> shape;
  uint32_t group;
  uint64_t offset, codes_size, scales_offset, scales_size;  // within the weights section
  Digest digest;
  const uint8_t* codes;
  const uint8_t* scales;  // null where there are none

  bool is_matrix() const { return static_cast<uint8_t>(kind) >= 16; }
  bool is_quantized() const { return static_cast<uint8_t>(kind) >= 18; }
  bool is_integers() const { return kind == WeightKind::matrix_i8; }
  // What the kernels read. A matrix_lpbq4 is a matrix_q4 to them, and their results are multiplied
  // with row_factors().
  PackedMatrix matrix() const;
  const float* row_factors() const;  // null where there are none
  // What is added to the weights of each group, as a matrix of floats [rows, cols/group].
  std::optional<PackedMatrix> group_offsets() const;
  IntegerMatrix integers() const;  // of a matrix_i8
  const char* kind_name() const;
  DType dtype() const;  // of a value that is this weight
};

class ProgramFile {
 public:
  // Validates the header, the section table and the weight index, with their checksums.
  // The weights themselves are not read.
  explicit ProgramFile(const std::string& path);

  const std::vector<SectionRecord>& sections() const { return sections_; }
  const std::vector<WeightEntry>& weights() const { return weights_; }
  const SectionRecord& section(SectionKind kind) const;
  const SectionRecord* find_section(SectionKind kind) const;  // null if there is none
  const uint8_t* bytes(const SectionRecord& section) const {
    return file_->data() + section.offset;
  }
  uint64_t size() const { return file_->size(); }
  const MappedFile& mapped() const { return *file_; }
  // For those who may read it after the program has gone.
  std::shared_ptr<const MappedFile> mapping() const { return file_; }
  void require_intact() const { file_->require_intact(); }

 private:
  void read_sections();
  void read_weight_index();
  void check_digest(SectionKind kind) const;

  std::shared_ptr<const MappedFile> file_;
  std::vector<SectionRecord> sections_;
  std::vector<WeightEntry> weights_;
};

}  // namespace satchel
