#include "tokenizer.h"

#include <algorithm>

#include "../runtime/errors.h"
#include "token_models.h"
#include "steps.h"
#include "text.h"
#include "unicode.h"

namespace satchel::llm {

// The scratch of one call.
class Tokenizer::Encoder {
 public:
  Encoder(const TokenizerTables& tables, bool parse_special, Tokens& ids)
      : tables_(tables),
        parse_special_(parse_special),
        ids_(ids),
        splitter_(tables),
        merger_(tables),
        best_path_(tables) {}

  void encode(std::string_view text) {
    each_added(tables_.raw, text, [&](std::string_view part, bool at_start) {
      if (tables_.normalizers.empty() && tables_.normal.empty()) {
        encode_part(part, at_start);
        return;
      }
      const std::string normal = normalize(tables_, part);
      each_added(tables_.normal, normal, [&](std::string_view inner, bool inner_start) {
        encode_part(inner, at_start && inner_start);
      });
    });
  }

 private:
  // Appends added tokens that are in a text, and calls `rest` for what lies between them.
  template <typename Rest>
  void each_added(const Trie& trie, std::string_view text, const Rest& rest) {
    size_t done = 0;
    for (size_t at = 0; !trie.empty() && at < text.size();) {
      size_t length = 0;
      uint32_t number = 0;
      trie.prefixes(text.substr(at), [&](size_t count, uint32_t value) {
        length = count, number = value;  // the longest comes last
      });
      if (length == 0) {
        ++at;
        continue;
      }
      size_t begin = at, end = at + length;
      at = end;
      const AddedToken& token = tables_.added[number];
      if (!parse_special_ && (token.flags & kIsSpecial) != 0) continue;
      if ((token.flags & kSingleWord) != 0 && !stands_alone(text, begin, end)) continue;
      if ((token.flags & kStripLeft) != 0) {
        while (begin > done && is_space(character_at(text, before(text, begin)).code))
          begin = before(text, begin);
      }
      if ((token.flags & kStripRight) != 0) {
        while (end < text.size() && is_space(character_at(text, end).code))
          end += character_at(text, end).length;
      }
      if (done < begin) rest(text.substr(done, begin - done), done == 0);
      ids_.push_back(token.id);
      done = end;
    }
    if (done < text.size()) rest(text.substr(done), done == 0);
  }

  static bool stands_alone(std::string_view text, size_t begin, size_t end) {
    return (begin == 0 || !is_word(character_at(text, before(text, begin)).code)) &&
           (end == text.size() || !is_word(character_at(text, end).code));
  }

  void encode_part(std::string_view text, bool at_start) {
    for (const std::string_view piece : splitter_.split(text, at_start)) {
      if (tables_.model == ModelKind::unigram) {
        best_path_.encode(piece, ids_);
      } else {
        merger_.encode(piece, ids_);
      }
    }
  }

  const TokenizerTables& tables_;
  bool parse_special_;
  Tokens& ids_;
  Splitter splitter_;
  PairMerger merger_;
  BestPath best_path_;
};

Tokenizer::Tokenizer(std::span<const uint8_t> section, uint64_t file_offset,
                     std::shared_ptr<const void> owner)
    : tables_(section, file_offset), owner_(std::move(owner)) {}

Tokens Tokenizer::encode(std::string_view text, bool parse_special) const {
  if (!is_utf8(text))
    throw TokenizerError("The text cannot be encoded", "Check that it is valid Unicode (UTF-8)");
  Tokens ids;
  ids.reserve(text.size() / 3 + 8);
  Encoder(tables_, parse_special, ids).encode(text);
  return ids;
}

Tokens Tokenizer::encode_prompt(std::string_view text) const {
  Tokens ids = encode(text);
  if (tables_.add_bos && tables_.bos != kNone && (ids.empty() || ids[0] != tables_.bos))
    ids.insert(ids.begin(), tables_.bos);
  const auto prefix = tables_.prefix_ids, suffix = tables_.suffix_ids;
  if (ids.size() < prefix.size() || !std::equal(prefix.begin(), prefix.end(), ids.begin()))
    ids.insert(ids.begin(), prefix.begin(), prefix.end());
  if (tables_.add_eos && !tables_.end_ids.empty()) ids.push_back(tables_.end_ids[0]);
  ids.insert(ids.end(), suffix.begin(), suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool skip_special) const {
  std::string text;
  TokenDecoder decoder(*this, {}, skip_special);
  for (const uint32_t id : ids) decoder.push(id, text);
  decoder.finish(text);
  return text;
}

uint32_t Tokenizer::tokens() const {
  uint32_t found = 0;
  for (uint32_t id = 0; id < tables_.count; ++id) found += exists(id);
  return found;
}

bool Tokenizer::is_end(uint32_t id) const {
  return std::find(tables_.end_ids.begin(), tables_.end_ids.end(), id) != tables_.end_ids.end();
}

TokenDecoder::TokenDecoder(const Tokenizer& tokenizer, std::span<const uint32_t> after,
                           bool skip_special, std::vector<uint32_t> shown)
    : tokenizer_(tokenizer), skip_special_(skip_special), shown_(std::move(shown)) {
  at_start_ = std::none_of(after.begin(), after.end(), [&](uint32_t id) { return is_shown(id); });
  strip_left_ = at_start_ ? tokenizer.tables().strip : 0;
}

bool TokenDecoder::is_shown(uint32_t id) const {
  if (!tokenizer_.exists(id)) return false;
  return !skip_special_ || tokenizer_.is_visible(id) ||
         std::find(shown_.begin(), shown_.end(), id) != shown_.end();
}

void TokenDecoder::push(uint32_t id, std::string& text) {
  const TokenizerTables& tables = tokenizer_.tables();
  if (!is_shown(id)) return;
  const std::string_view token = tables.text(id);
  if (tables.decoder == DecoderKind::bytes) {
    held_.append(token);
    while (!held_.empty()) {
      size_t bad = 0;
      const size_t good = valid_utf8(held_, &bad);
      text.append(held_, 0, good);
      held_.erase(0, good + bad);
      if (bad == 0) break;
      append_character(text, kReplacement);
    }
    return;
  }
  if ((tables.flags(id) & kByteToken) != 0) {
    held_.append(token);
    return;
  }
  end_bytes(text);
  if (tables.decoder == DecoderKind::metaspace && at_start_) {
    for (const char c : token) {
      if (c != ' ') text.push_back(c);
    }
  } else {
    put(token, text);
  }
  at_start_ = false;
}

void TokenDecoder::finish(std::string& text) {
  if (tokenizer_.tables().decoder != DecoderKind::bytes) {
    end_bytes(text);
  } else if (!held_.empty()) {
    append_character(text, kReplacement);  // the beginning of a character that does not come
    held_.clear();
  }
}

// A run of byte tokens is text only if all of it is.
void TokenDecoder::end_bytes(std::string& text) {
  if (held_.empty()) return;
  std::string run;
  if (is_utf8(held_)) {
    run = held_;
  } else {
    for (size_t i = 0; i < held_.size(); ++i) append_character(run, kReplacement);
  }
  held_.clear();
  put(run, text);
}

void TokenDecoder::put(std::string_view piece, std::string& text) {
  while (strip_left_ > 0 && !piece.empty()) {
    if (piece.front() != ' ') {
      strip_left_ = 0;
      break;
    }
    piece.remove_prefix(1);
    --strip_left_;
  }
  text.append(piece);
}

}  // namespace satchel::llm
