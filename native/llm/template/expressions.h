// Expressions of templates, from tokens.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../errors.h"
#include "lexer.h"
#include "syntax.h"

namespace satchel::llm::jinja {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::string_view source) : tokens_(tokenize(source)) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw TemplateError("The chat template cannot be parsed at line " +
                        std::to_string(peek().line) + ": " + why);
  }

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token take() {
    Token token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is_sign(std::string_view text, size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::sign && peek(ahead).text == text;
  }
  bool is_name(std::string_view text, size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::name && peek(ahead).text == text;
  }
  bool takes_sign(std::string_view text) { return is_sign(text) && (take(), true); }
  bool takes_name(std::string_view text) { return is_name(text) && (take(), true); }
  void expect_sign(std::string_view text) {
    if (!takes_sign(text)) fail("'" + std::string(text) + "' is missing");
  }
  void expect_block_end() {
    if (peek().kind != Token::Kind::end_block) fail("unexpected '" + peek().text + "'");
    take();
  }
  std::string expect_name() {
    if (peek().kind != Token::Kind::name) fail("a name is missing");
    return take().text;
  }

  struct Depth {
    explicit Depth(ExpressionParser& parser) : parser(parser) {
      if (++parser.depth_ > kDeepest) parser.fail("it is too deep");
    }
    ~Depth() { --parser.depth_; }
    ExpressionParser& parser;
  };

  // An expression, or several with commas between, which are a tuple.
  ExpressionPtr with_commas(bool may_choose = true);
  ExpressionPtr expression(bool may_choose = true);

 private:
  static constexpr int kDeepest = 100;

  using Kind = Expression::Kind;

  ExpressionPtr node(Kind kind) const {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = peek().line;
    return expression;
  }

  template <typename... Parts>
  ExpressionPtr node(Kind kind, std::string text, Parts... parts) const {
    ExpressionPtr made = node(kind);
    made->text = std::move(text);
    (made->parts.push_back(std::move(parts)), ...);
    return made;
  }

  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool filtered);
  ExpressionPtr constant(Value value) const;
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr found);
  ExpressionPtr subscript(ExpressionPtr of);
  std::vector<Argument> arguments();
  ExpressionPtr filters(ExpressionPtr found);
  ExpressionPtr test(ExpressionPtr of);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace satchel::llm::jinja
