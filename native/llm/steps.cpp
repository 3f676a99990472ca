#include "steps.h"

#include <algorithm>

#include "../runtime/errors.h"
#include "text.h"
#include "unicode.h"

namespace satchel::llm {

namespace {

constexpr size_t kMostGrowth = 64;  // a file's rules must not make a text so many times longer
constexpr size_t kFreeBytes = 1 << 16;

std::string replaced(std::string_view text, std::string_view old, std::string_view by) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0;;) {
    const size_t found = text.find(old, at);
    result.append(text.substr(at, found - at));
    if (found == std::string_view::npos) return result;
    result.append(by);
    at = found + old.size();
  }
}

std::string replaced(std::string_view text, const Regex& pattern, std::string_view by) {
  std::vector<Match> matches;
  pattern.find_all(text, matches);
  std::string result;
  size_t at = 0;
  for (const Match& match : matches) {
    result.append(text.substr(at, match.begin - at)).append(by);
    at = match.end;
  }
  return result.append(text.substr(at));
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && is_space(character_at(text, 0).code))
    text.remove_prefix(character_at(text, 0).length);
  while (right && !text.empty()) {
    const size_t last = before(text, text.size());
    if (!is_space(character_at(text, last).code)) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace

bool valid_normalizer(const Step& step, const Counts& counts) {
  switch (static_cast<NormalizerKind>(step.kind)) {
    case NormalizerKind::replace_text:
      return step.a < counts.strings && step.b < counts.strings;
    case NormalizerKind::replace_regex:
      return step.a < counts.patterns && step.b < counts.strings;
    case NormalizerKind::prepend:
      return step.a < counts.strings;
    case NormalizerKind::strip:
      return step.a <= 1 && step.b <= 1;
    case NormalizerKind::form:
      return step.a < kNormalForms;
  }
  return false;
}

bool valid_split(const Step& step, const Counts& counts) {
  const bool behaves = step.b <= static_cast<uint32_t>(Behavior::contiguous) && step.c <= 1;
  switch (static_cast<SplitKind>(step.kind)) {
    case SplitKind::text:
      return step.a < counts.strings && behaves;
    case SplitKind::regex:
      return step.a < counts.patterns && behaves;
    case SplitKind::character_class:
      return step.a < counts.classes && behaves;
    case SplitKind::prefix_space:
      return true;
    case SplitKind::metaspace:
      return step.a < counts.strings && step.b <= 2 && step.c <= 1;
  }
  return false;
}

std::string normalize(const TokenizerTables& tables, std::string_view text) {
  std::string result(text);
  const size_t most = text.size() * kMostGrowth + kFreeBytes;
  for (const Step& step : tables.normalizers) {
    switch (static_cast<NormalizerKind>(step.kind)) {
      case NormalizerKind::replace_text:
        if (!tables.string(step.a).empty())
          result = replaced(result, tables.string(step.a), tables.string(step.b));
        break;
      case NormalizerKind::replace_regex:
        result = replaced(result, tables.patterns[step.a], tables.string(step.b));
        break;
      case NormalizerKind::prepend:
        if (!result.empty()) result.insert(0, tables.string(step.a));
        break;
      case NormalizerKind::strip:
        result = std::string(stripped(result, step.a != 0, step.b != 0));
        break;
      case NormalizerKind::form:
        result = normalized(result, static_cast<NormalForm>(step.a));
        break;
    }
    if (result.size() > most) throw TokenizerError("the tokenizer's rules make the text too long");
  }
  return result;
}

const std::vector<std::string_view>& Splitter::split(std::string_view text, bool at_start) {
  own_.clear();
  pieces_.assign(1, text);
  for (const Step& step : tables_.splits) {
    next_.clear();
    bool first = at_start;
    for (const std::string_view piece : pieces_) {
      apply(step, piece, first);
      first = false;
    }
    pieces_.swap(next_);
  }
  return pieces_;
}

void Splitter::apply(const Step& step, std::string_view piece, bool at_start) {
  const auto behavior = static_cast<Behavior>(step.b);
  switch (static_cast<SplitKind>(step.kind)) {
    case SplitKind::prefix_space:
      if (!piece.starts_with(' ')) piece = own_.emplace_back(" ").append(piece);
      next_.push_back(piece);
      return;
    case SplitKind::metaspace: {
      const std::string_view mark = tables_.string(step.a);
      const auto scheme = static_cast<PrependScheme>(step.b);
      std::string marked = replaced(piece, " ", mark);
      const bool wanted =
          scheme == PrependScheme::always || (scheme == PrependScheme::first && at_start);
      if (wanted && !marked.starts_with(mark)) marked.insert(0, mark);
      piece = own_.emplace_back(std::move(marked));
      if (step.c == 0) {
        next_.push_back(piece);
        return;
      }
      find_text(piece, mark);
      emit(piece, Behavior::with_next);
      return;
    }
    case SplitKind::text:
      find_text(piece, tables_.string(step.a));
      break;
    case SplitKind::regex:
      tables_.patterns[step.a].find_all(piece, matches_);
      fill_gaps(piece);
      break;
    case SplitKind::character_class:
      find_class(piece, step.a);
      break;
  }
  if (step.c != 0) {
    for (Part& part : parts_) part.matches = !part.matches;
  }
  emit(piece, behavior);
}

void Splitter::find_text(std::string_view piece, std::string_view wanted) {
  matches_.clear();
  for (size_t at = 0; !wanted.empty();) {
    const size_t found = piece.find(wanted, at);
    if (found == std::string_view::npos) break;
    at = found + wanted.size();
    matches_.push_back({found, at});
  }
  fill_gaps(piece);
}

void Splitter::find_class(std::string_view piece, uint32_t number) {
  parts_.clear();
  size_t gap = 0;
  for (size_t at = 0; at < piece.size();) {
    const Character c = character_at(piece, at);
    if (tables_.classes.has(number, c.code)) {
      if (gap < at) parts_.push_back({gap, at, false});
      parts_.push_back({at, at + c.length, true});
      gap = at + c.length;
    }
    at += c.length;
  }
  if (gap < piece.size()) parts_.push_back({gap, piece.size(), false});
}

void Splitter::fill_gaps(std::string_view piece) {
  parts_.clear();
  size_t gap = 0;
  for (const Match& match : matches_) {
    if (gap < match.begin) parts_.push_back({gap, match.begin, false});
    parts_.push_back({match.begin, match.end, true});
    gap = match.end;
  }
  if (gap < piece.size()) parts_.push_back({gap, piece.size(), false});
}

void Splitter::emit(std::string_view piece, Behavior behavior) {
  const size_t count = parts_.size();
  switch (behavior) {
    case Behavior::removed:
      for (const Part& part : parts_) {
        if (!part.matches) put(piece, part.begin, part.end);
      }
      break;
    case Behavior::isolated:
      for (const Part& part : parts_) put(piece, part.begin, part.end);
      break;
    case Behavior::with_previous:
      for (size_t i = 0; i < count; ++i) {
        const size_t begin = parts_[i].begin;
        if (!parts_[i].matches && i + 1 < count && parts_[i + 1].matches) ++i;
        put(piece, begin, parts_[i].end);
      }
      break;
    case Behavior::with_next:
      for (size_t i = 0; i < count; ++i) {
        const size_t begin = parts_[i].begin;
        if (parts_[i].matches && i + 1 < count && !parts_[i + 1].matches) ++i;
        put(piece, begin, parts_[i].end);
      }
      break;
    case Behavior::contiguous:
      for (size_t i = 0; i < count;) {
        const size_t first = i;
        while (i < count && parts_[i].matches == parts_[first].matches) ++i;
        put(piece, parts_[first].begin, parts_[i - 1].end);
      }
      break;
  }
}

}  // namespace satchel::llm
