#include "lexer.h"

#include "../errors.h"
#include "../text.h"
#include "../unicode.h"

namespace satchel::llm::jinja {

namespace {

constexpr size_t kLongest = 1 << 17;  // the longest that we know have 20,000 letters

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string with_plain_line_ends(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      text += '\n';
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    bool line_starting = true;
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      std::string data = source_.substr(at_, tag - at_);
      const size_t begin = tag;
      if (tag == source_.size()) {
        add_data(data, data);
        break;
      }
      const char kind = source_[tag + 1];
      at_ = tag + 2;
      const char sign = at_ < source_.size() ? source_[at_] : ' ';
      std::string stripped = data;
      if (sign == '-') {
        while (!stripped.empty() && is_space(last_code(stripped))) drop_last(stripped);
      } else if (sign != '+' && kind != '{') {
        const size_t line = stripped.rfind('\n') + 1;
        if ((line > 0 || line_starting) &&
            stripped.find_first_not_of(" \t", line) == std::string::npos)
          stripped.resize(line);
      }
      add_data(data, stripped);
      if (sign == '-' || sign == '+') ++at_;
      if (kind == '#') {
        const size_t end = source_.find("#}", at_);
        if (end == std::string::npos) fail("a comment does not end");
        count_lines(source_.substr(at_, end - at_));
        const bool strips = end > at_ && source_[end - 1] == '-';
        const bool keeps = end > at_ && source_[end - 1] == '+';
        at_ = end + 2;
        after_tag(strips, !keeps);
      } else if (kind == '%' && takes_raw()) {
        // What lies within was added as text.
      } else {
        add(kind == '{' ? Token::Kind::begin_output : Token::Kind::begin_block, "");
        inside(kind == '{' ? "}}" : "%}");
      }
      line_starting = at_ > begin && source_[at_ - 1] == '\n';
    }
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw TemplateError("The chat template cannot be parsed at line " + std::to_string(line_) +
                        ": " + why);
  }

  static uint32_t last_code(const std::string& text) {
    return character_at(text, before(text, text.size())).code;
  }
  static void drop_last(std::string& text) { text.resize(before(text, text.size())); }

  size_t next_tag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    }
    return source_.size();
  }

  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  void add_data(const std::string& whole, std::string shown) {
    if (!shown.empty()) add(Token::Kind::data, std::move(shown));
    count_lines(whole);
  }

  void count_lines(std::string_view text) {
    for (const char c : text) line_ += c == '\n';
  }

  // What follows the end of a tag: all space if it strips, else one line end.
  void after_tag(bool strips, bool trims) {
    const size_t from = at_;
    if (strips) {
      while (at_ < source_.size() && is_space(character_at(source_, at_).code))
        at_ += character_at(source_, at_).length;
    } else if (trims && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
    count_lines(std::string_view(source_).substr(from, at_ - from));
  }

  // {% raw %} … {% endraw %}
  bool takes_raw() {
    const auto skip = [&](size_t at, std::string_view word) -> size_t {
      while (at < source_.size() && is_space(static_cast<uint8_t>(source_[at]))) ++at;
      if (source_.compare(at, word.size(), word) != 0) return std::string::npos;
      return at + word.size();
    };
    size_t at = skip(at_, "raw");
    if (at == std::string::npos || (at < source_.size() && is_letter(source_[at]))) return false;
    fail("{% raw %} is not done by the native template engine");
  }

  void inside(std::string_view end) {
    std::string open;  // brackets that are open, where an end does not count
    while (true) {
      while (at_ < source_.size() && is_space(static_cast<uint8_t>(source_[at_]))) {
        line_ += source_[at_] == '\n';
        ++at_;
      }
      if (at_ >= source_.size()) fail("a tag does not end");
      const char c = source_[at_];
      const std::string_view rest = std::string_view(source_).substr(at_);
      if (open.empty()) {
        const bool strips = c == '-' && rest.substr(1, 2) == end;
        const bool keeps = c == '+' && end == "%}" && rest.substr(1, 2) == end;
        if (strips || keeps || rest.substr(0, 2) == end) {
          at_ += strips || keeps ? 3 : 2;
          add(end == "}}" ? Token::Kind::end_output : Token::Kind::end_block, "");
          after_tag(strips, end == "%}" && !keeps);
          return;
        }
      }
      if (is_letter(c)) {
        name();
      } else if (is_digit(c)) {
        number();
      } else if (c == '"' || c == '\'') {
        string(c);
      } else {
        sign(rest, open);
      }
    }
  }

  void name() {
    const size_t first = at_;
    while (at_ < source_.size() && (is_letter(source_[at_]) || is_digit(source_[at_]))) ++at_;
    add(Token::Kind::name, source_.substr(first, at_ - first));
  }

  void number() {
    const size_t first = at_;
    bool real = false;
    while (at_ < source_.size() && (is_digit(source_[at_]) || source_[at_] == '_')) ++at_;
    if (at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1])) {
      real = true;
      ++at_;
      while (at_ < source_.size() && is_digit(source_[at_])) ++at_;
    }
    if (at_ < source_.size() && (source_[at_] == 'e' || source_[at_] == 'E')) {
      real = true;
      ++at_;
      if (at_ < source_.size() && (source_[at_] == '+' || source_[at_] == '-')) ++at_;
      while (at_ < source_.size() && is_digit(source_[at_])) ++at_;
    }
    std::string digits = source_.substr(first, at_ - first);
    std::erase(digits, '_');
    if (digits.size() > 40) fail("a number is too long");
    add(real ? Token::Kind::real : Token::Kind::whole, std::move(digits));
  }

  void string(char mark) {
    std::string value;
    const int line = line_;
    for (++at_;; ++at_) {
      if (at_ >= source_.size()) fail("a text does not end");
      const char c = source_[at_];
      if (c == mark) break;
      line_ += c == '\n';
      if (c != '\\') {
        value += c;
        continue;
      }
      if (++at_ >= source_.size()) fail("a text does not end");
      const char escaped = source_[at_];
      constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t which = kFrom.find(escaped); which != std::string_view::npos) {
        value += kTo[which];
      } else if (escaped == 'x' || escaped == 'u' || escaped == 'U') {
        append_escape(value, escaped == 'x' ? 2 : escaped == 'u' ? 4 : 8);
      } else if (is_digit(escaped)) {
        fail("an octal number in a text");
      } else if (escaped != '\n') {
        value += '\\';
        value += escaped;
      }
    }
    ++at_;
    tokens_.push_back({Token::Kind::text, std::move(value), line});
  }

  void append_escape(std::string& value, size_t digits) {
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      if (++at_ >= source_.size()) fail("a text does not end");
      const char c = source_[at_];
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("an escape is not a number");
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) fail("an escape is no character");
    append_character(value, code);
  }

  void sign(std::string_view rest, std::string& open) {
    for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"}) {
      if (rest.substr(0, 2) == two) {
        at_ += 2;
        add(Token::Kind::sign, std::string(two));
        return;
      }
    }
    const char c = rest[0];
    constexpr std::string_view kOpens = "([{", kCloses = ")]}";
    if (kOpens.find(c) != std::string_view::npos) {
      open += kCloses[kOpens.find(c)];
    } else if (kCloses.find(c) != std::string_view::npos) {
      if (open.empty() || open.back() != c) fail(std::string("an unexpected '") + c + "'");
      open.pop_back();
    } else if (std::string_view("+-*/%~<>=.,:|").find(c) == std::string_view::npos) {
      fail(std::string("an unexpected '") + c + "'");
    }
    ++at_;
    add(Token::Kind::sign, std::string(1, c));
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > kLongest) throw TemplateError("The chat template is too long");
  if (!is_utf8(source)) throw TemplateError("The chat template is not UTF-8");
  return Lexer(with_plain_line_ends(source)).run();
}

}  // namespace satchel::llm::jinja
