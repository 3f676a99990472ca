#include "expressions.h"

#include <charconv>
#include <cstdlib>
#include <set>

namespace satchel::llm::jinja {

namespace {

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

}  // namespace

ExpressionPtr ExpressionParser::with_commas(bool may_choose) {
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

ExpressionPtr ExpressionParser::expression(bool may_choose) {
  const Depth depth(*this);
  ExpressionPtr found = either();
  while (may_choose && takes_name("if")) {
    ExpressionPtr condition = either();
    ExpressionPtr otherwise = takes_name("else") ? expression() : nullptr;
    found = node(Kind::choice, "", std::move(found), std::move(condition), std::move(otherwise));
  }
  return found;
}

ExpressionPtr ExpressionParser::either() {
  ExpressionPtr left = both();
  while (takes_name("or")) left = node(Kind::binary, "or", std::move(left), both());
  return left;
}

ExpressionPtr ExpressionParser::both() {
  ExpressionPtr left = negation();
  while (takes_name("and")) left = node(Kind::binary, "and", std::move(left), negation());
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  const Depth depth(*this);
  if (takes_name("not")) return node(Kind::unary, "not", negation());
  return comparison();
}

ExpressionPtr ExpressionParser::comparison() {
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

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (is_sign("+") || is_sign("-")) {
    std::string sign = take().text;
    left = node(Kind::binary, std::move(sign), std::move(left), concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr left = product();
  while (takes_sign("~")) left = node(Kind::binary, "~", std::move(left), product());
  return left;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
    std::string sign = take().text;
    left = node(Kind::binary, std::move(sign), std::move(left), power());
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (takes_sign("**")) left = node(Kind::binary, "**", std::move(left), unary(true));
  return left;
}

ExpressionPtr ExpressionParser::unary(bool filtered) {
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

ExpressionPtr ExpressionParser::constant(Value value) const {
  ExpressionPtr made = node(Kind::constant);
  made->value = std::move(value);
  return made;
}

ExpressionPtr ExpressionParser::primary() {
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

ExpressionPtr ExpressionParser::postfix(ExpressionPtr found) {
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

ExpressionPtr ExpressionParser::subscript(ExpressionPtr of) {
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

std::vector<Argument> ExpressionParser::arguments() {
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

ExpressionPtr ExpressionParser::filters(ExpressionPtr found) {
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

ExpressionPtr ExpressionParser::test(ExpressionPtr of) {
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

}  // namespace satchel::llm::jinja
