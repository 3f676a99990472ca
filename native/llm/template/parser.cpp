#include <charconv>
#include <cstdlib>
#include <set>

#include "../errors.h"
#include "lexer.h"
#include "syntax.h"

namespace satchel::llm::jinja {

namespace {

constexpr int kDeepest = 100;
const std::set<std::string_view> kFilters = {
    "abs",     "capitalize", "count",  "d",      "default",    "dictsort", "e",          "escape",
    "first",   "float",      "indent", "int",    "items",      "join",     "last",       "length",
    "list",    "lower",      "map",    "max",    "min",        "reject",   "rejectattr", "replace",
    "reverse", "round",      "safe",   "select", "selectattr", "sort",     "string",     "sum",
    "title",   "tojson",     "trim",   "unique", "upper"};
const std::set<std::string_view> kTests = {
    "boolean",  "defined", "divisibleby", "eq",        "equalto", "even",     "false", "float",
    "ge",       "gt",      "greaterthan", "in",        "integer", "iterable", "le",    "lessthan",
    "lower",    "lt",      "mapping",     "ne",        "none",    "number",   "odd",   "sameas",
    "sequence", "string",  "true",        "undefined", "upper",   "callable"};

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Block whole() {
    Block block = statements({});
    if (peek().kind != Token::Kind::end) fail("'" + peek().text + "' has no beginning");
    return block;
  }

 private:
  using Kind = Expression::Kind;

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
    explicit Depth(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kDeepest) parser.fail("it is too deep");
    }
    ~Depth() { --parser.depth_; }
    Parser& parser;
  };

  // ---- Statements ----

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

  // ---- Expressions ----

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

  // An expression, or several with commas between, which are a tuple.
  ExpressionPtr with_commas(bool may_choose = true) {
    ExpressionPtr first = expression(may_choose);
    if (!is_sign(",")) return first;
    ExpressionPtr tuple = node(Kind::tuple);
    tuple->parts.push_back(std::move(first));
    while (takes_sign(",")) {
      if (peek().kind == Token::Kind::end_block || peek().kind == Token::Kind::end_output ||
          is_sign(")"))
        break;
      tuple->parts.push_back(expression(may_choose));
    }
    return tuple;
  }

  ExpressionPtr expression(bool may_choose = true) {
    const Depth depth(*this);
    ExpressionPtr found = either();
    while (may_choose && takes_name("if")) {
      ExpressionPtr condition = either();
      ExpressionPtr otherwise = takes_name("else") ? expression() : nullptr;
      found = node(Kind::choice, "", std::move(found), std::move(condition), std::move(otherwise));
    }
    return found;
  }

  ExpressionPtr either() {
    ExpressionPtr left = both();
    while (takes_name("or")) left = node(Kind::binary, "or", std::move(left), both());
    return left;
  }

  ExpressionPtr both() {
    ExpressionPtr left = negation();
    while (takes_name("and")) left = node(Kind::binary, "and", std::move(left), negation());
    return left;
  }

  ExpressionPtr negation() {
    const Depth depth(*this);
    if (takes_name("not")) return node(Kind::unary, "not", negation());
    return comparison();
  }

  ExpressionPtr comparison() {
    ExpressionPtr first = sum();
    ExpressionPtr found;
    while (true) {
      std::string sign;
      for (const std::string_view one : {"==", "!=", "<", "<=", ">", ">="}) {
        if (is_sign(one)) sign = one;
      }
      if (is_name("in")) sign = "in";
      if (is_name("not") && is_name("in", 1)) {
        sign = "not in";
        take();
      }
      if (sign.empty()) return found ? std::move(found) : std::move(first);
      take();
      if (!found) {
        found = node(Kind::compare);
        found->parts.push_back(std::move(first));
      }
      found->operators.push_back(sign);
      found->parts.push_back(sum());
    }
  }

  ExpressionPtr sum() {
    ExpressionPtr left = concatenation();
    while (is_sign("+") || is_sign("-")) {
      std::string sign = take().text;
      left = node(Kind::binary, std::move(sign), std::move(left), concatenation());
    }
    return left;
  }

  ExpressionPtr concatenation() {
    ExpressionPtr left = product();
    while (takes_sign("~")) left = node(Kind::binary, "~", std::move(left), product());
    return left;
  }

  ExpressionPtr product() {
    ExpressionPtr left = power();
    while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
      std::string sign = take().text;
      left = node(Kind::binary, std::move(sign), std::move(left), power());
    }
    return left;
  }

  ExpressionPtr power() {
    ExpressionPtr left = unary(true);
    while (takes_sign("**")) left = node(Kind::binary, "**", std::move(left), unary(true));
    return left;
  }

  ExpressionPtr unary(bool filtered) {
    const Depth depth(*this);
    ExpressionPtr found;
    if (is_sign("-") || is_sign("+")) {
      std::string sign = take().text;
      found = node(Kind::unary, std::move(sign), unary(false));
    } else {
      found = postfix(primary());
    }
    return filtered ? filters(std::move(found)) : std::move(found);
  }

  ExpressionPtr constant(Value value) const {
    ExpressionPtr made = node(Kind::constant);
    made->value = std::move(value);
    return made;
  }

  ExpressionPtr primary() {
    const Depth depth(*this);
    const Token token = take();
    switch (token.kind) {
      case Token::Kind::name:
        if (token.text == "true" || token.text == "True") return constant(Value::boolean(true));
        if (token.text == "false" || token.text == "False") return constant(Value::boolean(false));
        if (token.text == "none" || token.text == "None") return constant(Value::none());
        return node(Kind::name, token.text);
      case Token::Kind::text: {
        std::string text = token.text;
        while (peek().kind == Token::Kind::text) text += take().text;
        return constant(Value::text(std::move(text)));
      }
      case Token::Kind::whole: {
        int64_t whole = 0;
        const char* end = token.text.data() + token.text.size();
        if (std::from_chars(token.text.data(), end, whole).ec != std::errc())
          fail("a number is too large");
        return constant(Value::integer(whole));
      }
      case Token::Kind::real:
        return constant(Value::number(std::strtod(token.text.c_str(), nullptr)));
      default:
        break;
    }
    if (token.kind != Token::Kind::sign) fail("an expression is missing");
    if (token.text == "(") {
      if (takes_sign(")")) return node(Kind::tuple);
      ExpressionPtr inner = with_commas();
      expect_sign(")");
      return inner;
    }
    if (token.text == "[") {
      ExpressionPtr list = node(Kind::list);
      while (!takes_sign("]")) {
        list->parts.push_back(expression());
        if (!is_sign("]")) expect_sign(",");
      }
      return list;
    }
    if (token.text == "{") {
      ExpressionPtr dict = node(Kind::dict);
      while (!takes_sign("}")) {
        dict->parts.push_back(expression());
        expect_sign(":");
        dict->parts.push_back(expression());
        if (!is_sign("}")) expect_sign(",");
      }
      return dict;
    }
    fail("unexpected '" + token.text + "'");
  }

  ExpressionPtr postfix(ExpressionPtr found) {
    while (true) {
      if (takes_sign(".")) {
        std::string name = peek().kind == Token::Kind::whole ? take().text : expect_name();
        const bool number = name[0] >= '0' && name[0] <= '9';
        if (!number) {
          found = node(Kind::attribute, std::move(name), std::move(found));
        } else {
          found = node(Kind::item, "", std::move(found),
                       constant(Value::integer(std::atoi(name.c_str()))));
        }
      } else if (takes_sign("[")) {
        found = subscript(std::move(found));
      } else if (is_sign("(")) {
        found = node(Kind::call, "", std::move(found));
        found->arguments = arguments();
      } else {
        return found;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr of) {
    ExpressionPtr parts[3];
    int count = 0;
    bool sliced = false;
    while (!is_sign("]")) {
      if (takes_sign(":")) {
        sliced = true;
        if (++count > 2) fail("a slice has too many parts");
        continue;
      }
      if (parts[count]) fail("unexpected '" + peek().text + "'");
      parts[count] = expression();
    }
    expect_sign("]");
    if (!sliced) {
      if (!parts[0]) fail("an index is missing");
      return node(Kind::item, "", std::move(of), std::move(parts[0]));
    }
    return node(Kind::slice, "", std::move(of), std::move(parts[0]), std::move(parts[1]),
                std::move(parts[2]));
  }

  std::vector<Argument> arguments() {
    std::vector<Argument> list;
    expect_sign("(");
    while (!takes_sign(")")) {
      Argument argument;
      if (is_sign("*") || is_sign("**"))
        fail("*arguments are not done by the native template engine");
      if (peek().kind == Token::Kind::name && is_sign("=", 1)) {
        argument.name = take().text;
        take();
      }
      argument.value = expression();
      list.push_back(std::move(argument));
      if (!is_sign(")")) expect_sign(",");
    }
    return list;
  }

  ExpressionPtr filters(ExpressionPtr found) {
    while (true) {
      if (takes_sign("|")) {
        std::string name = expect_name();
        if (!kFilters.contains(name))
          fail("the filter '" + name + "' is not done by the native template engine");
        found = node(Kind::filter, std::move(name), std::move(found));
        if (is_sign("(")) found->arguments = arguments();
      } else if (takes_name("is")) {
        found = test(std::move(found));
      } else if (is_sign("(")) {
        found = node(Kind::call, "", std::move(found));
        found->arguments = arguments();
      } else {
        return found;
      }
    }
  }

  ExpressionPtr test(ExpressionPtr of) {
    const bool negated = takes_name("not");
    std::string name = expect_name();
    if (!kTests.contains(name))
      fail("the test '" + name + "' is not done by the native template engine");
    ExpressionPtr found = node(Kind::test, std::move(name), std::move(of));
    const Token& next = peek();
    const bool word = next.kind == Token::Kind::name && next.text != "else" && next.text != "or" &&
                      next.text != "and" && next.text != "is" && next.text != "if" &&
                      next.text != "in" && next.text != "not";
    if (is_sign("(")) {
      found->arguments = arguments();
    } else if (word || next.kind == Token::Kind::text || next.kind == Token::Kind::whole ||
               next.kind == Token::Kind::real || is_sign("[") || is_sign("{")) {
      found->arguments.push_back({"", postfix(primary())});
    }
    if (negated) return node(Kind::unary, "not", std::move(found));
    return found;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Block parse(std::string_view source) { return Parser(source).whole(); }

}  // namespace satchel::llm::jinja
