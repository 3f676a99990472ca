#include "verify.h"

#include "errors.h"

namespace satchel::llm {

namespace {

constexpr const char* kAgain = "Copy or export the file again.";

}  // namespace

void verify(const ProgramFile& file) {
  for (const SectionRecord& record : file.sections()) {
    Sha256 hash;
    if (record.kind == SectionKind::weights) {
      for (const WeightEntry& weight : file.weights())
        hash.update(weight.digest.data(), weight.digest.size());
    } else {
      hash.update(file.bytes(record), record.size);
    }
    if (hash.finish() != record.digest)
      throw ChecksumError(record.name, record.offset, "the section's checksum is wrong", kAgain);
  }
  const SectionRecord& data = file.section(SectionKind::weights);
  const uint8_t* bytes = file.bytes(data);
  uint64_t end = 0;
  const auto skip_to = [&](uint64_t offset) {
    for (; end < offset; ++end) {
      if (bytes[end] != 0)
        throw ChecksumError("weights", data.offset + end, "padding is not zero", kAgain);
    }
  };
  for (const WeightEntry& weight : file.weights()) {
    Sha256 hash;
    skip_to(weight.offset);
    hash.update(weight.codes, weight.codes_size);
    end = weight.offset + weight.codes_size;
    if (weight.scales_size > 0) {
      skip_to(weight.scales_offset);
      hash.update(weight.scales, weight.scales_size);
      end = weight.scales_offset + weight.scales_size;
    }
    if (hash.finish() != weight.digest) {
      throw ChecksumError(
          "weights", data.offset + weight.offset,
          "the bytes of the weight " + weight.name + " are not those that were written", kAgain);
    }
  }
  file.require_intact();
}

std::string checksum(const ProgramFile& file) {
  Sha256 hash;
  for (const SectionRecord& record : file.sections())
    hash.update(record.digest.data(), record.digest.size());
  std::string text;
  for (const uint8_t byte : hash.finish()) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace satchel::llm
