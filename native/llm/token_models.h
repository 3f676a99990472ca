// From a piece of text to tokens: byte pairs that are merged, or the likeliest way through.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer_tables.h"

namespace satchel::llm {

// Joins, again and again, the neighbours whose merge ranks first, as `tokenizers` does it.
class PairMerger {
 public:
  explicit PairMerger(const TokenizerTables& tables) : tables_(tables) {}
  void encode(std::string_view piece, std::vector<uint32_t>& ids);

 private:
  struct Symbol {
    uint32_t id;
    int32_t before, after;  // -1: none
    bool gone;
  };
  struct Candidate {
    uint32_t rank, at, becomes;
    // The heap's top is what comes first.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };

  void add(uint32_t id);
  void add_bytes(std::string_view piece);
  void add_characters(std::string_view piece);
  void consider(int32_t left);
  void merge();

  const TokenizerTables& tables_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

// Sentencepiece's unigram model: the pieces whose scores add up to most.
class BestPath {
 public:
  explicit BestPath(const TokenizerTables& tables);
  void encode(std::string_view piece, std::vector<uint32_t>& ids);

 private:
  struct Node {
    double score;
    size_t begin;
    uint32_t id;
    bool reached;
  };

  void emit(std::string_view text, std::vector<uint32_t>& ids) const;

  const TokenizerTables& tables_;
  double unknown_score_ = 0;
  std::vector<Node> nodes_;
  std::vector<std::string_view> path_;
};

}  // namespace satchel::llm
