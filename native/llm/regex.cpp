#include "regex.h"

#include <cstddef>

#include "../runtime/errors.h"
#include "text.h"
#include "unicode.h"

namespace satchel::llm {

namespace {

enum Op : uint32_t {
  kMatch,
  kChar,
  kSet,
  kJump,
  kSplit,
  kRepeat,
  kLook,
  kAnchor,
  kAtomic,
  kBehind
};
constexpr uint32_t kLengths[] = {1, 2, 2, 2, 3, 5, 3, 2, 2, 3};  // of the instructions
constexpr uint32_t kOps = 10;
enum Mode : uint32_t { kGreedy, kPossessive, kLazy };
enum Anchor : uint32_t { kTextBegin, kTextEnd, kLineBegin, kLineEnd, kLastLineEnd };

constexpr size_t kFailed = SIZE_MAX;
constexpr int kDeepest = 16;             // looks within looks
constexpr uint64_t kStepsPerByte = 500;  // a tokenizer's patterns take fewer than 20
constexpr uint64_t kFreeSteps = 100000;

}  // namespace

bool CharacterClasses::valid() const {
  if (words_.size() % kWords != 0 || ranges_.size() % 2 != 0) return false;
  for (size_t i = 0; i < words_.size(); i += kWords) {
    const uint64_t end = uint64_t{words_[i + 6]} + words_[i + 7];
    if (end > ranges_.size() / 2) return false;
    for (uint64_t r = words_[i + 6]; r < end; ++r) {
      if (ranges_[2 * r] > ranges_[2 * r + 1]) return false;
      if (r > words_[i + 6] && ranges_[2 * r] <= ranges_[2 * r - 1]) return false;
    }
  }
  return true;
}

bool CharacterClasses::has_beyond_ascii(const uint32_t* words, uint32_t code) const {
  bool found = words[4] != 0 && (words[4] >> category(code) & 1) != 0;
  if (!found) {
    uint32_t low = words[6], high = words[6] + words[7];
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (ranges_[2 * middle + 1] < code) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    found = low < words[6] + words[7] && ranges_[2 * low] <= code;
  }
  return found != (words[5] != 0);
}

bool Regex::valid() const {
  std::vector<bool> starts(code_.size(), false);
  size_t last = 0;
  for (size_t pc = 0; pc < code_.size(); pc += kLengths[code_[pc]]) {
    if (code_[pc] >= kOps || code_.size() - pc < kLengths[code_[pc]]) return false;
    starts[pc] = true;
    last = pc;
  }
  if (code_.empty() || code_[last] != kMatch) return false;
  const auto leads = [&](size_t pc, uint32_t by) {
    const int64_t to = static_cast<int64_t>(pc) + static_cast<int32_t>(by);
    return to >= 0 && to < static_cast<int64_t>(code_.size()) && starts[static_cast<size_t>(to)];
  };
  for (size_t pc = 0; pc < code_.size(); pc += kLengths[code_[pc]]) {
    const uint32_t* in = &code_[pc];
    switch (in[0]) {
      case kSet:
        if (in[1] >= classes_->size()) return false;
        break;
      case kJump:
      case kAtomic:
        if (!leads(pc, in[1])) return false;
        break;
      case kSplit:
        if (!leads(pc, in[1]) || !leads(pc, in[2])) return false;
        break;
      case kRepeat:
        if (in[1] >= classes_->size() || in[2] > in[3] || in[4] > kLazy) return false;
        break;
      case kLook:
        if (!leads(pc, in[2])) return false;
        break;
      case kAnchor:
        if (in[1] > kLastLineEnd) return false;
        break;
      case kBehind:
        if (in[2] >= classes_->size()) return false;
        break;
      default:
        break;
    }
  }
  return true;
}

struct Regex::Matcher {
  // Where to go on: at an instruction, from a place; a repetition may give back what it took down
  // to `least`, or take more.
  struct Choice {
    size_t pc, at, least;
    uint32_t set;
    bool lazy;
  };

  const uint32_t* code;
  const CharacterClasses& classes;
  std::string_view text;
  uint64_t steps_left;
  std::vector<Choice> choices;

  // The end of a match that begins at `at`, or kFailed.
  size_t match(size_t pc, size_t at, int depth) {
    if (depth > kDeepest) fail();
    const size_t base = choices.size();
    while (true) {
      if (steps_left-- == 0) fail();
      const uint32_t* in = code + pc;
      bool good = true;
      switch (in[0]) {
        case kMatch:
          choices.resize(base);
          return at;
        case kChar:
        case kSet: {
          good = at < text.size();
          if (!good) break;
          const Character c = character_at(text, at);
          good = in[0] == kChar ? c.code == in[1] : classes.has(in[1], c.code);
          at += c.length;
          pc += 2;
          break;
        }
        case kJump:
          pc = by(pc, in[1]);
          break;
        case kSplit:
          choices.push_back({by(pc, in[2]), at, at, 0, false});
          pc = by(pc, in[1]);
          break;
        case kRepeat:
          good = repeat(in, pc, &at);
          pc += 5;
          break;
        case kLook:
          good = (match(pc + 3, at, depth + 1) != kFailed) != (in[1] != 0);
          pc = by(pc, in[2]);
          break;
        case kAnchor:
          good = holds(in[1], at);
          pc += 2;
          break;
        case kAtomic: {
          const size_t end = match(pc + 2, at, depth + 1);
          good = end != kFailed;
          at = end;
          pc = by(pc, in[1]);
          break;
        }
        default:
          good = (at > 0 && classes.has(in[2], character_at(text, before(text, at)).code)) !=
                 (in[1] != 0);
          pc += 3;
      }
      if (!good && !go_back(base, &pc, &at)) return kFailed;
    }
  }

  bool repeat(const uint32_t* in, size_t pc, size_t* at) {
    const uint32_t set = in[1], least = in[2], mode = in[4];
    const uint32_t most = mode == kLazy ? least : in[3];
    size_t end = *at, least_end = *at;
    uint32_t count = 0;
    while (count < most && end < text.size()) {
      const Character c = character_at(text, end);
      if (!classes.has(set, c.code)) break;
      end += c.length;
      if (++count == least) least_end = end;
    }
    steps_left -= steps_left < count / 8 ? steps_left : count / 8;
    if (count < least) return false;
    if (mode == kGreedy && end > least_end) choices.push_back({pc + 5, end, least_end, set, false});
    // A lazy one has no limit: the exporter writes out those that have.
    if (mode == kLazy && in[3] > least) choices.push_back({pc + 5, end, end, set, true});
    *at = end;
    return true;
  }

  bool go_back(size_t base, size_t* pc, size_t* at) {
    while (choices.size() > base) {
      if (steps_left-- == 0) fail();
      Choice& top = choices.back();
      *pc = top.pc;
      if (top.lazy) {
        if (top.at < text.size()) {
          const Character c = character_at(text, top.at);
          if (classes.has(top.set, c.code)) {
            top.at += c.length;
            *at = top.at;
            return true;
          }
        }
        choices.pop_back();
      } else if (top.at > top.least) {
        top.at = before(text, top.at);
        *at = top.at;
        if (top.at == top.least) choices.pop_back();
        return true;
      } else {
        *at = top.at;
        choices.pop_back();
        return true;
      }
    }
    return false;
  }

  bool holds(uint32_t anchor, size_t at) const {
    const bool at_end = at == text.size();
    switch (anchor) {
      case kTextBegin:
        return at == 0;
      case kTextEnd:
        return at_end;
      case kLineBegin:
        return at == 0 || (text[at - 1] == '\n' && !at_end);
      case kLineEnd:
        return at_end || text[at] == '\n';
      default:
        return at_end || (text[at] == '\n' && at + 1 == text.size());
    }
  }

  static size_t by(size_t pc, uint32_t distance) {
    return static_cast<size_t>(static_cast<std::ptrdiff_t>(pc) + static_cast<int32_t>(distance));
  }

  [[noreturn]] static void fail() {
    throw TokenizerError("a regular expression of the tokenizer takes too long for this text");
  }
};

void Regex::find_all(std::string_view text, std::vector<Match>& matches) const {
  matches.clear();
  Matcher matcher{code_.data(), *classes_, text, kFreeSteps + kStepsPerByte * text.size(), {}};
  size_t at = 0, last_end = kFailed;
  while (at <= text.size()) {
    const size_t end = matcher.match(0, at, 0);
    if (end == kFailed || (end == at && end == last_end)) {
      // Nothing here, or nothing but the empty end of what was found last.
      if (at == text.size()) break;
      at += character_at(text, at).length;
      continue;
    }
    matches.push_back({at, end});
    last_end = end;
    at = end;
    if (end == matches.back().begin && end == text.size()) break;
  }
}

}  // namespace satchel::llm
