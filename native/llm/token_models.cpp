#include "token_models.h"

#include <algorithm>

#include "text.h"

namespace satchel::llm {

namespace {

constexpr double kUnknownPenalty = 10.0;

}  // namespace

void PairMerger::encode(std::string_view piece, std::vector<uint32_t>& ids) {
  if (tables_.whole_words) {
    if (const uint32_t whole = tables_.find(piece); whole != kNone) {
      ids.push_back(whole);
      return;
    }
  }
  symbols_.clear();
  if (tables_.model == ModelKind::byte_level) {
    add_bytes(piece);
  } else {
    add_characters(piece);
  }
  if (symbols_.size() > 1) merge();
  for (const Symbol& symbol : symbols_) {
    if (!symbol.gone) ids.push_back(symbol.id);
  }
}

void PairMerger::add(uint32_t id) {
  const auto at = static_cast<int32_t>(symbols_.size());
  if (at > 0) symbols_.back().after = at;
  symbols_.push_back({id, at - 1, -1, false});
}

void PairMerger::add_bytes(std::string_view piece) {
  bool was_unknown = false;
  for (const char byte : piece) {
    const uint32_t id = tables_.byte_ids[static_cast<uint8_t>(byte)];
    const bool known = id != kNone;
    if (known) {
      add(id);
    } else if (tables_.unknown != kNone && !(was_unknown && tables_.fuse_unknown)) {
      add(tables_.unknown);
    }
    was_unknown = !known;
  }
}

void PairMerger::add_characters(std::string_view piece) {
  // Unknown characters become one token, which is written when a known one comes: as bytes stand
  // for themselves, they do not end a run of unknown ones.
  bool pending = false;
  const auto write_pending = [&] {
    if (pending) add(tables_.unknown);
    pending = false;
  };
  for (size_t at = 0; at < piece.size();) {
    const uint32_t length = character_at(piece, at).length;
    const std::string_view one = piece.substr(at, length);
    at += length;
    if (const uint32_t id = tables_.find(one); id != kNone) {
      write_pending();
      add(id);
      continue;
    }
    const auto has_id = [&](char byte) {
      return tables_.byte_ids[static_cast<uint8_t>(byte)] != kNone;
    };
    if (tables_.byte_fallback && std::all_of(one.begin(), one.end(), has_id)) {
      for (const char byte : one) add(tables_.byte_ids[static_cast<uint8_t>(byte)]);
      continue;
    }
    if (tables_.unknown == kNone) continue;
    if (!tables_.fuse_unknown) write_pending();
    pending = true;
  }
  write_pending();
}

void PairMerger::consider(int32_t left) {
  const int32_t right = symbols_[static_cast<size_t>(left)].after;
  if (right < 0) return;
  const Merge* found = tables_.find_merge(symbols_[static_cast<size_t>(left)].id,
                                          symbols_[static_cast<size_t>(right)].id);
  if (found == nullptr) return;
  heap_.push_back({found->rank, static_cast<uint32_t>(left), found->becomes});
  std::push_heap(heap_.begin(), heap_.end());
}

void PairMerger::merge() {
  heap_.clear();
  for (size_t i = 0; i + 1 < symbols_.size(); ++i) consider(static_cast<int32_t>(i));
  while (!heap_.empty()) {
    const Candidate top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    Symbol& left = symbols_[top.at];
    if (left.gone || left.after < 0) continue;
    Symbol& right = symbols_[static_cast<size_t>(left.after)];
    // The neighbours may have changed since; what counts is what they would become.
    const Merge* now = tables_.find_merge(left.id, right.id);
    if (now == nullptr || now->becomes != top.becomes) continue;
    left.id = top.becomes;
    left.after = right.after;
    right.gone = true;
    if (right.after >= 0) {
      symbols_[static_cast<size_t>(right.after)].before = static_cast<int32_t>(top.at);
    }
    if (left.before >= 0) consider(left.before);
    consider(static_cast<int32_t>(top.at));
  }
}

BestPath::BestPath(const TokenizerTables& tables) : tables_(tables) {
  double lowest = 0;
  bool first = true;
  for (const double score : tables.scores) {
    lowest = first ? score : std::min(lowest, score);
    first = false;
  }
  unknown_score_ = lowest - kUnknownPenalty;
}

void BestPath::encode(std::string_view piece, std::vector<uint32_t>& ids) {
  nodes_.assign(piece.size() + 1, {0, 0, 0, false});
  const auto offer = [&](size_t begin, size_t end, uint32_t id, double score) {
    Node& node = nodes_[end];
    if (!node.reached || score > node.score) node = {score, begin, id, true};
  };
  for (size_t at = 0; at < piece.size();) {
    const double so_far = nodes_[at].score;
    const uint32_t length = character_at(piece, at).length;
    bool has_single = false;
    tables_.vocabulary.prefixes(piece.substr(at), [&](size_t count, uint32_t id) {
      offer(at, at + count, id, tables_.scores[id] + so_far);
      has_single = has_single || count == length;
    });
    if (!has_single) offer(at, at + length, tables_.unknown, unknown_score_ + so_far);
    at += length;
  }
  path_.clear();
  size_t unknown_end = 0;  // of a run of unknown characters that is still open; 0: none
  for (size_t end = piece.size(); end > 0;) {
    const Node& node = nodes_[end];
    const bool is_unknown = tables_.fuse_unknown && node.id == tables_.unknown;
    if (is_unknown && unknown_end == 0) unknown_end = end;
    if (!is_unknown) {
      if (unknown_end != 0) path_.push_back(piece.substr(end, unknown_end - end));
      unknown_end = 0;
      path_.push_back(piece.substr(node.begin, end - node.begin));
    }
    end = node.begin;
  }
  if (unknown_end != 0) path_.push_back(piece.substr(0, unknown_end));
  for (auto text = path_.rbegin(); text != path_.rend(); ++text) emit(*text, ids);
}

void BestPath::emit(std::string_view text, std::vector<uint32_t>& ids) const {
  if (const uint32_t id = tables_.find(text); id != kNone) {
    ids.push_back(id);
    return;
  }
  const auto id_of = [&](char byte) { return tables_.byte_ids[static_cast<uint8_t>(byte)]; };
  if (tables_.byte_fallback &&
      std::all_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) != kNone; })) {
    for (const char byte : text) ids.push_back(id_of(byte));
  } else {
    ids.push_back(tables_.unknown);
  }
}

}  // namespace satchel::llm
