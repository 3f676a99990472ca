// A compiled tokenizer where it lies in a program (the section `text`). docs/format.md is the spec;
// satchel/llm/compiled/tokenizer.py writes it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "regex.h"
#include "trie.h"

namespace satchel::llm {

enum class ModelKind : uint32_t { byte_level = 0, characters = 1, unigram = 2 };
enum class DecoderKind : uint32_t { bytes = 0, pieces = 1, metaspace = 2 };

// Of a token.
enum TokenFlags : uint8_t { kSpecialToken = 1, kAddedToken = 2, kByteToken = 4, kAbsentToken = 8 };
// Of a token that is looked for in a text as a whole.
enum AddedFlags : uint32_t { kStripLeft = 1, kStripRight = 2, kSingleWord = 4, kIsSpecial = 8 };

struct AddedToken {
  uint32_t id, flags;
};

struct Merge {
  uint32_t left, right, rank, becomes;
};

struct Step {
  uint32_t kind, a, b, c;
};

struct TokenizerTables {
  // Throws FormatError unless everything in the section is in its place. `file_offset` is where
  // the section lies, for messages.
  TokenizerTables(std::span<const uint8_t> section, uint64_t file_offset);
  TokenizerTables(const TokenizerTables&) = delete;  // patterns point to the classes
  TokenizerTables& operator=(const TokenizerTables&) = delete;

  ModelKind model;
  DecoderKind decoder;
  uint32_t count;  // of the tokens
  bool byte_fallback, fuse_unknown, whole_words, add_bos, add_eos;
  uint32_t unknown, bos;  // kNone if there is none
  uint32_t strip;         // spaces that decoding takes from the start of a text

  std::span<const uint32_t> end_ids, prefix_ids, suffix_ids;
  std::span<const uint32_t> byte_ids;  // of each byte, or kNone
  std::span<const double> scores;
  std::span<const AddedToken> added;
  std::span<const Step> normalizers, splits;
  Trie vocabulary, raw, normal;  // raw: looked for before normalisation, normal: after it
  CharacterClasses classes;
  std::vector<Regex> patterns;

  // What a token is to the model, and what it is as text.
  std::string_view key(uint32_t id) const { return part(keys_, key_offsets_, id); }
  std::string_view text(uint32_t id) const { return part(texts_, text_offsets_, id); }
  uint8_t flags(uint32_t id) const { return flags_[id]; }
  std::string_view string(uint32_t number) const { return part(strings_, string_offsets_, number); }

  uint32_t find(std::string_view key) const;                     // kNone if there is none
  const Merge* find_merge(uint32_t left, uint32_t right) const;  // null if there is none

 private:
  using Bytes = std::span<const uint8_t>;
  using Words = std::span<const uint32_t>;

  static std::string_view part(Bytes bytes, Words offsets, uint32_t number) {
    return {reinterpret_cast<const char*>(bytes.data()) + offsets[number],
            offsets[number + 1] - offsets[number]};
  }

  Bytes keys_, texts_, strings_, flags_;
  Words key_offsets_, text_offsets_, string_offsets_, key_table_;
  std::span<const Merge> merges_;
};

}  // namespace satchel::llm
