// Statements of templates.
#include <set>

#include "expressions.h"

namespace satchel::llm::jinja {

namespace {

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Block whole() {
    Block block = statements({});
    if (peek().kind != Token::Kind::end) fail("'" + peek().text + "' has no beginning");
    return block;
  }

 private:
  // Up to a block that begins with one of these names, which is left.
  Block statements(const std::set<std::string_view>& ends) {
    const Depth depth(*this);
    Block block;
    while (peek().kind != Token::Kind::end) {
      if (peek().kind == Token::Kind::data) {
        auto data = made(Statement::Kind::data);
        data->text = take().text;
        block.push_back(std::move(data));
      } else if (peek().kind == Token::Kind::begin_output) {
        take();
        auto output = made(Statement::Kind::output);
        output->parts.push_back(with_commas());
        if (peek().kind != Token::Kind::end_output) fail("unexpected '" + peek().text + "'");
        take();
        block.push_back(std::move(output));
      } else {
        if (peek().kind != Token::Kind::begin_block) fail("unexpected '" + peek().text + "'");
        if (peek(1).kind == Token::Kind::name && ends.contains(peek(1).text)) return block;
        take();
        statement(block);
      }
    }
    return block;
  }

  std::unique_ptr<Statement> made(Statement::Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = peek().line;
    return statement;
  }

  // The name of the block that ended a list of statements.
  std::string ending() {
    if (peek().kind == Token::Kind::end) fail("a block does not end");
    take();
    return expect_name();
  }

  void statement(Block& block) {
    const std::string name = expect_name();
    if (name == "if") {
      block.push_back(branch());
    } else if (name == "for") {
      block.push_back(loop());
    } else if (name == "set") {
      block.push_back(set());
    } else if (name == "macro") {
      block.push_back(macro());
    } else if (name == "break" || name == "continue") {
      block.push_back(made(name == "break" ? Statement::Kind::leave : Statement::Kind::go_on));
      expect_block_end();
    } else if (name == "generation") {
      auto scope = made(Statement::Kind::scope);
      expect_block_end();
      scope->blocks.push_back(statements({"endgeneration"}));
      ending();
      expect_block_end();
      block.push_back(std::move(scope));
    } else {
      fail("the tag '" + name + "' is not done by the native template engine");
    }
  }

  std::unique_ptr<Statement> branch() {
    auto made_branch = made(Statement::Kind::branch);
    std::string ended = "elif";
    while (ended == "elif") {
      made_branch->parts.push_back(with_commas());
      expect_block_end();
      made_branch->blocks.push_back(statements({"elif", "else", "endif"}));
      ended = ending();
    }
    if (ended == "else") {
      expect_block_end();
      made_branch->blocks.push_back(statements({"endif"}));
      ending();
    }
    expect_block_end();
    return made_branch;
  }

  // Names with commas between, perhaps in brackets.
  void targets(Statement& statement) {
    const bool in_brackets = takes_sign("(");
    do {
      if (statement.unpacks && (is_name("in") || is_sign("="))) break;
      std::string name = expect_name();
      if (statement.kind != Statement::Kind::loop && takes_sign(".")) name += "." + expect_name();
      statement.targets.push_back(std::move(name));
      if (is_sign(",")) statement.unpacks = true;
    } while (takes_sign(","));
    if (in_brackets) expect_sign(")");
  }

  std::unique_ptr<Statement> loop() {
    auto made_loop = made(Statement::Kind::loop);
    targets(*made_loop);
    if (!takes_name("in")) fail("'in' is missing");
    made_loop->parts.push_back(with_commas(false));
    made_loop->parts.push_back(takes_name("if") ? expression() : nullptr);
    if (is_name("recursive")) fail("recursive loops are not done by the native template engine");
    expect_block_end();
    made_loop->blocks.push_back(statements({"else", "endfor"}));
    if (ending() == "else") {
      expect_block_end();
      made_loop->blocks.push_back(statements({"endfor"}));
      ending();
    }
    expect_block_end();
    return made_loop;
  }

  std::unique_ptr<Statement> set() {
    auto made_set = made(Statement::Kind::set);
    targets(*made_set);
    if (takes_sign("=")) {
      made_set->parts.push_back(with_commas());
      expect_block_end();
      return made_set;
    }
    made_set->kind = Statement::Kind::set_block;
    if (!is_sign("|") && peek().kind != Token::Kind::end_block) fail("'=' is missing");
    if (is_sign("|")) fail("filters of a block are not done by the native template engine");
    expect_block_end();
    made_set->blocks.push_back(statements({"endset"}));
    ending();
    expect_block_end();
    return made_set;
  }

  std::unique_ptr<Statement> macro() {
    auto made_macro = made(Statement::Kind::macro);
    made_macro->text = expect_name();
    expect_sign("(");
    while (!takes_sign(")")) {
      Parameter parameter{expect_name(), nullptr};
      if (takes_sign("=")) parameter.otherwise = expression();
      made_macro->parameters.push_back(std::move(parameter));
      if (!is_sign(")")) expect_sign(",");
    }
    expect_block_end();
    made_macro->blocks.push_back(statements({"endmacro"}));
    ending();
    if (peek().kind == Token::Kind::name) take();
    expect_block_end();
    return made_macro;
  }
};

}  // namespace

Block parse(std::string_view source) { return Parser(source).whole(); }

}  // namespace satchel::llm::jinja
