// A parsed chat template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "value.h"

namespace satchel::llm::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Argument {
  std::string name;  // empty: by place
  ExpressionPtr value;
};

struct Expression {
  enum class Kind {
    constant,
    name,
    list,
    tuple,
    dict,       // parts: key, value, key, value …
    attribute,  // parts[0] . text
    item,       // parts[0] [ parts[1] ]
    slice,      // parts[0] [ parts[1] : parts[2] : parts[3] ]; each may be null
    call,       // parts[0] ( arguments )
    filter,     // parts[0] | text ( arguments )
    test,       // parts[0] is text ( arguments )
    unary,      // text parts[0]
    binary,     // parts[0] text parts[1]
    compare,    // parts[0] operators[0] parts[1] operators[1] parts[2] …
    choice,     // parts[0] if parts[1] else parts[2], which may be null
  };

  Kind kind;
  int line = 0;
  Value value;
  std::string text;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> operators;
  std::vector<Argument> arguments;
};

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // null: must be given, or is undefined
};

struct Statement {
  enum class Kind { data, output, branch, loop, set, set_block, macro, leave, go_on, scope };

  Kind kind;
  int line = 0;
  std::string text;  // data; the macro's name
  std::vector<std::string>
      targets;           // names that a loop or set gives values to; "a.b": an attribute
  bool unpacks = false;  // there are several targets, or one with a comma
  std::vector<ExpressionPtr> parts;  // output: one; branch: conditions; loop: what, if; set: value
  std::vector<Block> blocks;         // branch: as conditions, and else; loop: body, else
  std::vector<Parameter> parameters;
};

struct Macro {
  const Statement* definition;
};

// Throws TemplateError if it is not a template, or has what is not done here.
Block parse(std::string_view source);

}  // namespace satchel::llm::jinja
