#include "program_file.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "cursor.h"
#include "errors.h"

namespace satchel {

namespace {

constexpr uint8_t kMagic[8] = {'S', 'A', 'T', 'C', 'H', 'E', 'L', 0};
constexpr uint32_t kVersion = 2;      // without the section `text`
constexpr uint32_t kTextVersion = 3;  // with it
constexpr uint64_t kHeaderSize = 64;
constexpr uint64_t kRecordSize = 64;
constexpr uint64_t kDigestOffset = 32;
constexpr uint64_t kAlignment = 256;      // the strictest that a GPU's driver asks for
constexpr uint64_t kPlaneAlignment = 64;  // of the parts that the scales of a matrix have
constexpr uint64_t kWeightsAlignment = 4096;
constexpr const char* kSectionNames[] = {"",        "tokenizer", "methods", "weight_index",
                                         "weights", "metadata",  "text"};
constexpr uint32_t kSectionCount = 5;  // one more with `text`
// 255 * 128 * 65536 is below 2^31: the kernels add the products of a group in 32 bits.
constexpr uint32_t kMaxGroup = 65536;

uint64_t align(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

bool known_kind(uint8_t kind) { return kind <= 5 || (kind >= 16 && kind <= 30); }

struct Sizes {
  uint64_t codes, scales;
};

// Groups of all rows, with those that fill up the last tile.
uint64_t padded_groups(const WeightEntry& w) {
  return align(static_cast<uint64_t>(w.shape[0]), kTileRows) *
         (static_cast<uint64_t>(w.shape[1]) / w.group);
}

// Where in the scales what belongs to them starts (factors, minima, offsets): after one fp16 for
// each group.
uint64_t second_plane(const WeightEntry& w) { return align(padded_groups(w) * 2, kPlaneAlignment); }

// The bytes that a weight of this shape must take; the shape's size was checked to be sane.
Sizes expected_sizes(const WeightEntry& w) {
  uint64_t elements = 1;
  for (const int64_t dim : w.shape) elements *= static_cast<uint64_t>(dim);
  if (!w.is_matrix()) return {elements * dtype_size(w.dtype()), 0};
  const auto rows = align(static_cast<uint64_t>(w.shape[0]), kTileRows);
  const auto cols = static_cast<uint64_t>(w.shape[1]);
  switch (w.kind) {
    case WeightKind::matrix_f32:
      return {rows * cols * 4, 0};
    case WeightKind::matrix_f16:
      return {rows * cols * 2, 0};
    case WeightKind::matrix_q4_steps:
      return {rows * cols / 2, rows / kTileRows * sizeof(uint16_t) *
                                   static_cast<uint64_t>(scales_in_tile(MatrixEncoding::q4_steps,
                                                                        w.shape[1], w.group))};
    case WeightKind::matrix_q4:
      return {rows * cols / 2, padded_groups(w) * 2};
    case WeightKind::matrix_lpbq4:
      return {rows * cols / 2, second_plane(w) + rows * sizeof(float)};
    case WeightKind::matrix_q4_min:
      return {rows * cols / 2, second_plane(w) + padded_groups(w) * 2};
    case WeightKind::matrix_q4_offset:
      return {rows * cols / 2, second_plane(w) + padded_groups(w) * sizeof(float)};
    case WeightKind::matrix_q8_offset:
      return {rows * cols, second_plane(w) + padded_groups(w) * sizeof(float)};
    case WeightKind::matrix_i8:
      return {rows * align(cols, 4), rows * sizeof(int32_t)};
    case WeightKind::matrix_q5:
      return {rows * cols / 8 * 5, padded_groups(w) * 2};
    case WeightKind::matrix_q5_min:
      return {rows * cols / 8 * 5, second_plane(w) + padded_groups(w) * 2};
    case WeightKind::matrix_q4_k:
    case WeightKind::matrix_q5_k:
    case WeightKind::matrix_q6_k: {
      const MatrixEncoding encoding = w.matrix().encoding;
      const uint64_t tiles = rows / kTileRows;
      return {tiles * cols * static_cast<uint64_t>(column_bytes(encoding)),
              tiles * sizeof(uint16_t) *
                  static_cast<uint64_t>(scales_in_tile(encoding, w.shape[1], w.group))};
    }
    default:
      return {rows * cols, padded_groups(w) * 2};
  }
}

// Whether columns can be in groups of this size.
bool fits_group(const WeightEntry& w) {
  const auto cols = static_cast<uint64_t>(w.shape[1]);
  if (w.group == 0 || w.group > kMaxGroup || cols % w.group != 0) return false;
  switch (w.kind) {
    case WeightKind::matrix_q8:
    case WeightKind::matrix_q8_offset:
      return w.group % 4 == 0;
    case WeightKind::matrix_q4_steps:
      return w.group % 8 == 0 && kRunColumns % w.group == 0;
    case WeightKind::matrix_q5:
    case WeightKind::matrix_q5_min:
      return w.group % 32 == 0;
    case WeightKind::matrix_q4_k:
    case WeightKind::matrix_q5_k:
      return w.group == 32 && cols % kSuperblock == 0;
    case WeightKind::matrix_q6_k:
      return w.group == 16 && cols % kSuperblock == 0;
    default:
      return w.group % 8 == 0;
  }
}

}  // namespace

PackedMatrix WeightEntry::matrix() const {
  auto encoding = static_cast<MatrixEncoding>(static_cast<uint8_t>(kind) - 16);
  if (kind == WeightKind::matrix_lpbq4 || kind == WeightKind::matrix_q4_offset)
    encoding = MatrixEncoding::q4;
  if (kind == WeightKind::matrix_q8_offset) encoding = MatrixEncoding::q8;
  return {encoding, shape[0], shape[1], group, codes, reinterpret_cast<const uint16_t*>(scales)};
}

const float* WeightEntry::row_factors() const {
  if (kind != WeightKind::matrix_lpbq4) return nullptr;
  return reinterpret_cast<const float*>(scales + second_plane(*this));
}

std::optional<PackedMatrix> WeightEntry::group_offsets() const {
  const bool halves = kind == WeightKind::matrix_q4_min || kind == WeightKind::matrix_q5_min;
  if (!halves && kind != WeightKind::matrix_q4_offset && kind != WeightKind::matrix_q8_offset)
    return std::nullopt;
  return PackedMatrix{halves ? MatrixEncoding::f16 : MatrixEncoding::f32,
                      shape[0],
                      shape[1] / group,
                      0,
                      scales + second_plane(*this),
                      nullptr};
}

IntegerMatrix WeightEntry::integers() const {
  return {shape[0], (shape[1] + 3) / 4, reinterpret_cast<const int8_t*>(codes),
          reinterpret_cast<const int32_t*>(scales)};
}

const char* WeightEntry::kind_name() const {
  constexpr const char* plain[] = {"f32", "f16", "i32", "u8", "boolean", "i64"};
  constexpr const char* matrix[] = {
      "matrix_f32",    "matrix_f16",       "matrix_q4",        "matrix_q8",   "matrix_lpbq4",
      "matrix_q4_min", "matrix_q4_offset", "matrix_q8_offset", "matrix_i8",   "matrix_q4_steps",
      "matrix_q5",     "matrix_q5_min",    "matrix_q4_k",      "matrix_q5_k", "matrix_q6_k"};
  const auto code = static_cast<uint8_t>(kind);
  return code < 16 ? plain[code] : matrix[code - 16];
}

DType WeightEntry::dtype() const {
  switch (kind) {
    case WeightKind::f16:
      return DType::f16;
    case WeightKind::i32:
      return DType::i32;
    case WeightKind::i64:
      return DType::i64;
    case WeightKind::u8:
      return DType::u8;
    case WeightKind::boolean:
      return DType::boolean;
    case WeightKind::matrix_i8:
      return DType::i8;
    default:
      return DType::f32;
  }
}

ProgramFile::ProgramFile(const std::string& path) : file_(std::make_shared<MappedFile>(path)) {
  read_sections();
  check_digest(SectionKind::methods);
  check_digest(SectionKind::weight_index);
  read_weight_index();
}

void ProgramFile::read_sections() {
  const uint64_t size = file_->size();
  if (size < kHeaderSize) throw FormatError("header", size, "the file ends within the header");
  Cursor head("header", file_->data(), kHeaderSize, 0);
  if (std::memcmp(head.take(8), kMagic, 8) != 0) {
    throw FormatError("header", 0, "this is not a Satchel program",
                      "Make one with: satchel export CHECKPOINT.");
  }
  const uint32_t version = head.u32();
  if (version != kVersion && version != kTextVersion) {
    throw FormatError("header", 8,
                      "the file has the format version " + std::to_string(version) +
                          ", and this is version " + std::to_string(kTextVersion),
                      "Use the Satchel that wrote it, or export the model again.");
  }
  const uint32_t count = head.u32();
  if (count != kSectionCount + (version == kTextVersion ? 1 : 0))
    throw FormatError("header", 12, "it claims " + std::to_string(count) + " sections");
  if (head.u64() != size) {
    throw FormatError("header", 16, "the file is not as long as it says",
                      "It was cut off or appended to; copy or export it again.");
  }
  if (head.u64() != 0) throw FormatError("header", 24, "reserved bytes are not zero");
  const uint64_t table_end = kHeaderSize + count * kRecordSize;
  if (table_end > size) throw FormatError("header", size, "the file ends within the section table");

  Sha256 hash;
  hash.update(file_->data(), kDigestOffset);
  hash.update(file_->data() + kHeaderSize, count * kRecordSize);
  const Digest digest = hash.finish();
  if (std::memcmp(digest.data(), file_->data() + kDigestOffset, digest.size()) != 0) {
    throw ChecksumError("header", kDigestOffset, "the header's checksum is wrong");
  }

  Cursor table("section table", file_->data() + kHeaderSize, count * kRecordSize, kHeaderSize);
  uint64_t end = table_end;
  std::set<uint32_t> seen;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t kind = table.u32();
    if (kind < 1 || kind > count || !seen.insert(kind).second) {
      table.fail("unknown or repeated section " + std::to_string(kind));
    }
    if (table.u32() != 0) table.fail("reserved bytes are not zero");
    SectionRecord record{
        static_cast<SectionKind>(kind), kSectionNames[kind], table.u64(), table.u64(), {}};
    if (table.u64() != 0) table.fail("reserved bytes are not zero");
    std::memcpy(record.digest.data(), table.take(32), 32);
    const uint64_t alignment = record.kind == SectionKind::weights ? kWeightsAlignment : kAlignment;
    // Sections follow each other in order, so that none can overlap and no byte is unaccounted for.
    const uint64_t place = kHeaderSize + i * kRecordSize;
    if (record.offset != align(end, alignment)) {
      throw FormatError(record.name, place, "the section is not where the one before it ends");
    }
    if (record.offset > size || record.size > size - record.offset) {
      throw FormatError(record.name, place, "the section reaches past the end of the file");
    }
    for (uint64_t at = end; at < record.offset; ++at) {
      if (file_->data()[at] != 0) throw FormatError(record.name, at, "padding is not zero");
    }
    end = record.offset + record.size;
    sections_.push_back(std::move(record));
  }
  if (end != size)
    throw FormatError("section table", end, "there are bytes after the last section");
}

const SectionRecord* ProgramFile::find_section(SectionKind kind) const {
  const auto found = std::find_if(sections_.begin(), sections_.end(),
                                  [&](const auto& s) { return s.kind == kind; });
  return found == sections_.end() ? nullptr : &*found;
}

const SectionRecord& ProgramFile::section(SectionKind kind) const { return *find_section(kind); }

void ProgramFile::check_digest(SectionKind kind) const {
  const SectionRecord& record = section(kind);
  Sha256 hash;
  hash.update(bytes(record), record.size);
  if (hash.finish() != record.digest) {
    throw ChecksumError(record.name, record.offset, "the section's checksum is wrong");
  }
}

void ProgramFile::read_weight_index() {
  const SectionRecord& record = section(SectionKind::weight_index);
  const SectionRecord& data = section(SectionKind::weights);
  Cursor in(record.name, bytes(record), record.size, record.offset);
  const uint32_t count = in.count(2 + 1 + 1 + 4 + 4 * 8 + 32);
  std::set<std::string> names;  // a tree: whoever knows a hash can make all names collide
  uint64_t end = 0;
  for (uint32_t i = 0; i < count; ++i) {
    WeightEntry w{};
    w.name = in.name("a weight");
    if (!names.insert(w.name).second) in.fail("the weight " + w.name + " is repeated");
    const uint8_t kind = in.u8();
    if (!known_kind(kind)) in.fail(w.name + " has the unknown encoding " + std::to_string(kind));
    w.kind = static_cast<WeightKind>(kind);
    const uint8_t rank = in.u8();
    if (rank > kMaxRank || (w.is_matrix() && rank != 2)) in.fail(w.name + " has a bad rank");
    for (uint8_t d = 0; d < rank; ++d) {
      const int64_t dim = in.i64();
      if (dim < 1 || dim > kMaxDim) in.fail(w.name + " has the dimension " + std::to_string(dim));
      w.shape.push_back(dim);
    }
    // Four bytes and up to 15 rows of padding more than the elements: still far below overflow.
    if (!tensor_bytes(DType::f32, w.shape)) in.fail(w.name + " is too large");
    w.group = in.u32();
    if (w.is_quantized() && !w.is_integers()) {
      if (!fits_group(w)) in.fail(w.name + " has the bad group " + std::to_string(w.group));
    } else if (w.group != 0) {
      in.fail(w.name + " has a group but is not quantised in groups");
    }
    w.offset = in.u64(), w.codes_size = in.u64(), w.scales_offset = in.u64(),
    w.scales_size = in.u64();
    std::memcpy(w.digest.data(), in.take(32), 32);
    const Sizes sizes = expected_sizes(w);
    if (w.codes_size != sizes.codes || w.scales_size != sizes.scales)
      in.fail(w.name + " has a wrong size");
    if (w.offset != align(end, kAlignment))
      in.fail(w.name + " is not where the weight before it ends");
    end = w.offset + w.codes_size;
    const uint64_t scales_at = w.scales_size ? align(end, kAlignment) : 0;
    if (w.scales_offset != scales_at) in.fail(w.name + " has its scales in the wrong place");
    if (w.scales_size) end = scales_at + w.scales_size;
    if (end > data.size) in.fail(w.name + " reaches past the weights section");
    w.codes = bytes(data) + w.offset;
    w.scales = w.scales_size ? bytes(data) + w.scales_offset : nullptr;
    weights_.push_back(std::move(w));
  }
  if (end != data.size) in.fail("the weights section is longer than its weights");
  in.expect_end();
}

}  // namespace satchel
