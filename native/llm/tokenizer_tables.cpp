#include "tokenizer_tables.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "../runtime/errors.h"
#include "steps.h"
#include "text.h"
#include "unicode.h"

namespace satchel::llm {

namespace {

constexpr char kMagic[8] = {'S', 'A', 'T', 'C', 'H', 'T', 'O', 'K'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHead = 24, kAlignment = 16;
constexpr uint32_t kMostTokens = 1u << 24;
constexpr uint32_t kFlagBits = 5;
constexpr size_t kLongestSearch = 4096;

// The arrays of the section, in its order.
enum ArrayName : size_t {
  kSettings,
  kEndIds,
  kPrefixIds,
  kSuffixIds,
  kKeyOffsets,
  kKeys,
  kKeyTable,
  kTextOffsets,
  kTexts,
  kFlags,
  kByteIds,
  kMerges,
  kScores,
  kVocabularyNodes,
  kVocabularyEdges,
  kAdded,
  kRawNodes,
  kRawEdges,
  kNormalNodes,
  kNormalEdges,
  kNormalizers,
  kSplits,
  kStringOffsets,
  kStrings,
  kPatternOffsets,
  kPatterns,
  kClasses,
  kRanges,
  kArrays
};

class Reader {
 public:
  Reader(std::span<const uint8_t> section, uint64_t file_offset)
      : section_(section), file_offset_(file_offset) {
    if (section.size() < kHead || std::memcmp(section.data(), kMagic, sizeof kMagic) != 0)
      fail(0, "the compiled tokenizer has no head");
    if (word(8) != kVersion) {
      throw FormatError("text", file_offset_ + 8,
                        "the compiled tokenizer has the version " + std::to_string(word(8)),
                        "Use the Satchel that wrote it, or export the model again.");
    }
    if (word(12) != kArrays || number(16) != section.size() ||
        section.size() < kHead + 16 * kArrays)
      fail(12, "the compiled tokenizer is not as long as it says");
    // Arrays follow each other, so that no byte belongs to two of them.
    uint64_t end = kHead + 16 * kArrays;
    for (size_t i = 0; i < kArrays; ++i) {
      const uint64_t offset = number(kHead + 16 * i), size = number(kHead + 16 * i + 8);
      if (offset != (end + kAlignment - 1) / kAlignment * kAlignment || offset > section.size() ||
          size > section.size() - offset)
        fail(kHead + 16 * i, "an array of the compiled tokenizer is not in its place");
      end = offset + size;
      offsets_[i] = offset, sizes_[i] = size;
    }
    if ((end + kAlignment - 1) / kAlignment * kAlignment != section.size())
      fail(kHead, "the compiled tokenizer is longer than its arrays");
  }

  template <typename T>
  std::span<const T> array(ArrayName name) const {
    const uint8_t* at = section_.data() + offsets_[name];
    if (sizes_[name] % sizeof(T) != 0 || reinterpret_cast<uintptr_t>(at) % alignof(T) != 0)
      fail_in(name, "an array has half an element");
    return {reinterpret_cast<const T*>(at), sizes_[name] / sizeof(T)};
  }

  // Offsets of parts that fill an array.
  std::span<const uint32_t> offsets(ArrayName name, size_t end) const {
    const auto found = array<uint32_t>(name);
    if (found.empty() || found.front() != 0 || found.back() != end ||
        !std::is_sorted(found.begin(), found.end()))
      fail_in(name, "offsets are not in order");
    return found;
  }

  [[noreturn]] void fail_in(ArrayName name, const std::string& message) const {
    fail(offsets_[name], message);
  }

 private:
  [[noreturn]] void fail(uint64_t at, const std::string& message) const {
    throw FormatError("text", file_offset_ + at, message);
  }
  uint32_t word(size_t at) const {
    uint32_t value;
    std::memcpy(&value, section_.data() + at, sizeof value);
    return value;
  }
  uint64_t number(size_t at) const {
    uint64_t value;
    std::memcpy(&value, section_.data() + at, sizeof value);
    return value;
  }

  std::span<const uint8_t> section_;
  uint64_t file_offset_;
  uint64_t offsets_[kArrays], sizes_[kArrays];
};

// A search ends at an empty slot, and must not take long.
template <typename T, typename IsEmpty>
bool has_gaps(std::span<const T> slots, const IsEmpty& is_empty) {
  size_t run = 0;
  for (size_t i = 0; i < 2 * slots.size(); ++i) {  // twice: a run may go on at the beginning
    run = is_empty(slots[i % slots.size()]) ? 0 : run + 1;
    if (run > kLongestSearch) return false;
    if (run >= slots.size()) return false;
  }
  return true;
}

uint64_t text_hash(std::string_view text) {
  uint64_t value = 0xCBF29CE484222325;
  for (const char byte : text) value = (value ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  return value ^ value >> 32;
}

uint64_t pair_hash(uint32_t left, uint32_t right) {
  const uint64_t value = left * 0x9E3779B97F4A7C15 + right * 0xC2B2AE3D27D4EB4F;
  return value ^ value >> 32;
}

}  // namespace

TokenizerTables::TokenizerTables(std::span<const uint8_t> section, uint64_t file_offset) {
  const Reader reader(section, file_offset);
  const auto settings = reader.array<uint32_t>(kSettings);
  if (settings.size() != 8 || settings[0] > 2 || settings[1] > kMostTokens ||
      settings[2] >> kFlagBits != 0 || settings[5] > 2 || settings[7] != 0)
    reader.fail_in(kSettings, "a setting of the tokenizer is not known");
  model = static_cast<ModelKind>(settings[0]);
  count = settings[1];
  const auto flag = [&](uint32_t bit) { return (settings[2] >> bit & 1) != 0; };
  byte_fallback = flag(0), fuse_unknown = flag(1), whole_words = flag(2);
  add_bos = flag(3), add_eos = flag(4);
  unknown = settings[3], bos = settings[4];
  decoder = static_cast<DecoderKind>(settings[5]);
  strip = settings[6];

  const auto require_ids = [&](ArrayName name, std::span<const uint32_t> ids, bool may_miss) {
    for (const uint32_t id : ids) {
      if (id >= count && !(may_miss && id == kNone))
        reader.fail_in(name, "there is no token " + std::to_string(id));
    }
  };
  const auto ids = [&](ArrayName name, bool may_miss = false) {
    const auto found = reader.array<uint32_t>(name);
    require_ids(name, found, may_miss);
    return found;
  };
  require_ids(kSettings, settings.subspan(3, 2), true);
  end_ids = ids(kEndIds), prefix_ids = ids(kPrefixIds), suffix_ids = ids(kSuffixIds);
  byte_ids = ids(kByteIds, true);
  if (byte_ids.size() != 256) reader.fail_in(kByteIds, "there are not 256 bytes");

  keys_ = reader.array<uint8_t>(kKeys), texts_ = reader.array<uint8_t>(kTexts);
  key_offsets_ = reader.offsets(kKeyOffsets, keys_.size());
  text_offsets_ = reader.offsets(kTextOffsets, texts_.size());
  flags_ = reader.array<uint8_t>(kFlags);
  if (key_offsets_.size() != count + 1 || text_offsets_.size() != count + 1 ||
      flags_.size() != count)
    reader.fail_in(kFlags, "not every token has a text");
  key_table_ = ids(kKeyTable, true);
  merges_ = reader.array<Merge>(kMerges);
  for (const Merge& merge : merges_) {
    if (merge.left != kNone &&
        (merge.left >= count || merge.right >= count || merge.becomes >= count))
      reader.fail_in(kMerges, "a merge is of tokens that are not there");
  }
  if (key_table_.empty() || !has_gaps(key_table_, [](uint32_t id) { return id == kNone; }) ||
      !has_gaps(merges_, [](const Merge& m) { return m.left == kNone; }))
    reader.fail_in(kKeyTable, "a table of the tokenizer is full");

  scores = reader.array<double>(kScores);
  for (const double score : scores) {
    if (!std::isfinite(score)) reader.fail_in(kScores, "a score is not a number");
  }
  const auto words = [&](ArrayName name) { return reader.array<uint32_t>(name); };
  vocabulary = Trie(words(kVocabularyNodes), words(kVocabularyEdges));
  if (!vocabulary.valid(scores.size()) || scores.size() > count ||
      (model == ModelKind::unigram && unknown == kNone))
    reader.fail_in(kVocabularyNodes, "the vocabulary's trie is not valid");

  added = reader.array<AddedToken>(kAdded);
  for (const AddedToken& token : added) {
    if (token.id >= count || token.flags > 15)
      reader.fail_in(kAdded, "an added token is not known");
  }
  raw = Trie(words(kRawNodes), words(kRawEdges));
  normal = Trie(words(kNormalNodes), words(kNormalEdges));
  if (!raw.valid(added.size()) || !normal.valid(added.size()))
    reader.fail_in(kRawNodes, "the trie of the added tokens is not valid");

  strings_ = reader.array<uint8_t>(kStrings);
  string_offsets_ = reader.offsets(kStringOffsets, strings_.size());
  for (uint32_t i = 0; i + 1 < string_offsets_.size(); ++i) {
    if (!is_utf8(string(i))) reader.fail_in(kStrings, "a string is not UTF-8");
  }
  classes = CharacterClasses(words(kClasses), words(kRanges));
  if (!classes.valid()) reader.fail_in(kClasses, "a class of characters is not valid");
  const auto code = words(kPatterns);
  const auto pattern_offsets = reader.offsets(kPatternOffsets, code.size());
  for (size_t i = 0; i + 1 < pattern_offsets.size(); ++i) {
    const uint32_t first = pattern_offsets[i];
    patterns.emplace_back(code.subspan(first, pattern_offsets[i + 1] - first), classes);
    if (!patterns.back().valid()) reader.fail_in(kPatterns, "a pattern is not valid");
  }
  normalizers = reader.array<Step>(kNormalizers);
  splits = reader.array<Step>(kSplits);
  const Counts counts{string_offsets_.size() - 1, patterns.size(), classes.size()};
  for (const Step& step : normalizers) {
    if (!valid_normalizer(step, counts)) reader.fail_in(kNormalizers, "a normaliser is not known");
  }
  for (const Step& step : splits) {
    if (!valid_split(step, counts)) reader.fail_in(kSplits, "a pre-tokeniser is not known");
  }
  // What decoding gives must be UTF-8, but for the bytes of those that are made of bytes.
  for (uint32_t id = 0; decoder != DecoderKind::bytes && id < count; ++id) {
    const bool good = (flags(id) & kByteToken) != 0 ? text(id).size() == 1 : is_utf8(text(id));
    if (!good) reader.fail_in(kTexts, "the token " + std::to_string(id) + " is not UTF-8");
  }
}

uint32_t TokenizerTables::find(std::string_view wanted) const {
  size_t at = text_hash(wanted) % key_table_.size();
  while (key_table_[at] != kNone) {
    if (key(key_table_[at]) == wanted) return key_table_[at];
    if (++at == key_table_.size()) at = 0;
  }
  return kNone;
}

const Merge* TokenizerTables::find_merge(uint32_t left, uint32_t right) const {
  if (merges_.empty()) return nullptr;
  size_t at = pair_hash(left, right) % merges_.size();
  while (merges_[at].left != kNone) {
    if (merges_[at].left == left && merges_[at].right == right) return &merges_[at];
    if (++at == merges_.size()) at = 0;
  }
  return nullptr;
}

}  // namespace satchel::llm
