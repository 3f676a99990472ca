#include "template.h"

#include "../errors.h"
#include "functions.h"

namespace satchel::llm::jinja {

namespace {

constexpr size_t kMostOutput = 16 << 20;
constexpr int kDeepest = 200;

using Names = std::map<std::string, Value>;

class Interpreter {
 public:
  explicit Interpreter(Names globals) { scopes_.push_back(std::move(globals)); }

  void run(const Block& block, std::string& out) {
    for (const auto& statement : block) {
      if (flow_ != Flow::on) return;
      run(*statement, out);
    }
  }

  int line() const { return line_; }

 private:
  enum class Flow { on, leave, go_on };

  struct Depth {
    explicit Depth(int& depth) : depth(depth) {
      if (++depth > kDeepest) fail("it is too deep");
    }
    ~Depth() { --depth; }
    int& depth;
  };

  void run(const Statement& s, std::string& out) {
    const Depth depth(depth_);
    budget_.step();
    line_ = s.line;
    switch (s.kind) {
      case Statement::Kind::data:
        write(out, s.text);
        break;
      case Statement::Kind::output:
        write(out, evaluate(*s.parts[0]).str());
        break;
      case Statement::Kind::branch: {
        size_t at = 0;
        while (at < s.parts.size() && !evaluate(*s.parts[at]).truthy()) ++at;
        if (at < s.blocks.size()) run(s.blocks[at], out);
        break;
      }
      case Statement::Kind::loop:
        loop(s, out);
        break;
      case Statement::Kind::set:
        assign(s, evaluate(*s.parts[0]));
        break;
      case Statement::Kind::set_block: {
        std::string text;
        scopes_.emplace_back();
        run(s.blocks[0], text);
        scopes_.pop_back();
        assign(s, Value::text(std::move(text)));
        break;
      }
      case Statement::Kind::macro: {
        Value macro;
        macro.kind = Kind::macro;
        macro.macro = std::make_shared<const Macro>(Macro{&s});
        scopes_.back()[s.text] = macro;
        break;
      }
      case Statement::Kind::leave:
        flow_ = Flow::leave;
        break;
      case Statement::Kind::go_on:
        flow_ = Flow::go_on;
        break;
      case Statement::Kind::scope:
        scopes_.emplace_back();
        run(s.blocks[0], out);
        scopes_.pop_back();
        break;
    }
  }

  void write(std::string& out, const std::string& text) {
    budget_.keep(text.size());
    out += text;
    if (out.size() > kMostOutput) fail("it makes too much text");
  }

  void assign(const Statement& s, const Value& value) {
    if (!s.unpacks) {
      assign(s.targets[0], value);
      return;
    }
    const List items = items_of(value);
    if (items.size() != s.targets.size()) fail("there are not as many values as names");
    for (size_t i = 0; i < items.size(); ++i) assign(s.targets[i], items[i]);
  }

  void assign(const std::string& target, const Value& value) {
    const size_t dot = target.find('.');
    if (dot == std::string::npos) {
      scopes_.back()[target] = value;
      return;
    }
    const Value space = lookup(target.substr(0, dot));
    const std::string name = target.substr(dot + 1);
    if (space.kind != Kind::space) fail("only a namespace's attributes can be set");
    if (name.starts_with('_')) fail("a namespace cannot have the attribute '" + name + "'");
    for (auto& [key, held] : *space.dict) {
      if (*key.string == name) {
        held = value;
        return;
      }
    }
    space.dict->emplace_back(Value::text(name), value);
  }

  Value lookup(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) return found->second;
    }
    for (const char* known : {"range", "raise_exception", "strftime_now", "namespace", "dict"}) {
      if (name == known) return Value::function(name);
    }
    return Value::undefined(name);
  }

  void loop(const Statement& s, std::string& out) {
    const Value over = evaluate(*s.parts[0]);
    List items = items_of(over);
    budget_.keep(items.size() * 16);
    if (s.parts[1]) {
      List kept;
      for (const Value& item : items) {
        scopes_.emplace_back();
        assign(s, item);
        if (evaluate(*s.parts[1]).truthy()) kept.push_back(item);
        scopes_.pop_back();
      }
      items = std::move(kept);
    }
    if (items.empty()) {
      if (s.blocks.size() > 1) run(s.blocks[1], out);
      return;
    }
    const auto count = static_cast<int64_t>(items.size());
    for (int64_t i = 0; i < count; ++i) {
      scopes_.emplace_back();
      const auto at = [&](int64_t n) {
        return n >= 0 && n < count ? items[static_cast<size_t>(n)] : Value::undefined("an item");
      };
      Dict facts;
      const auto fact = [&](const char* name, Value value) {
        facts.emplace_back(Value::text(name), std::move(value));
      };
      fact("index", Value::integer(i + 1));
      fact("index0", Value::integer(i));
      fact("revindex", Value::integer(count - i));
      fact("revindex0", Value::integer(count - i - 1));
      fact("first", Value::boolean(i == 0));
      fact("last", Value::boolean(i + 1 == count));
      fact("length", Value::integer(count));
      fact("previtem", at(i - 1));
      fact("nextitem", at(i + 1));
      scopes_.back()["loop"] = Value::of(std::move(facts), Kind::space);
      assign(s, items[static_cast<size_t>(i)]);
      run(s.blocks[0], out);
      scopes_.pop_back();
      const bool leaves = flow_ == Flow::leave;
      flow_ = Flow::on;
      if (leaves) break;
    }
  }

  Value evaluate(const Expression& e) {
    const Depth depth(depth_);
    budget_.step();
    using Kind = Expression::Kind;
    switch (e.kind) {
      case Kind::constant:
        return e.value;
      case Kind::name:
        return lookup(e.text);
      case Kind::list:
      case Kind::tuple: {
        List items;
        for (const auto& part : e.parts) items.push_back(evaluate(*part));
        return Value::of(std::move(items),
                         e.kind == Kind::list ? jinja::Kind::list : jinja::Kind::tuple);
      }
      case Kind::dict: {
        Dict entries;
        for (size_t i = 0; i < e.parts.size(); i += 2)
          set_entry(entries, evaluate(*e.parts[i]), evaluate(*e.parts[i + 1]));
        return Value::of(std::move(entries));
      }
      case Kind::attribute:
        return attribute_of(evaluate(*e.parts[0]), e.text);
      case Kind::item:
        return item_of(evaluate(*e.parts[0]), evaluate(*e.parts[1]));
      case Kind::slice:
        return slice(e);
      case Kind::call:
        return call(e);
      case Kind::filter:
        return call_filter(e.text, evaluate(*e.parts[0]), arguments(e), budget_);
      case Kind::test:
        return Value::boolean(call_test(e.text, evaluate(*e.parts[0]), arguments(e)));
      case Kind::unary:
        return unary(e);
      case Kind::binary:
        return binary(e);
      case Kind::compare:
        return comparison(e);
      case Kind::choice:
        if (evaluate(*e.parts[1]).truthy()) return evaluate(*e.parts[0]);
        return e.parts[2] ? evaluate(*e.parts[2]) : Value::undefined();
    }
    return Value::undefined();
  }

  Arguments arguments(const Expression& e) {
    Arguments given;
    for (const Argument& argument : e.arguments) {
      Value value = evaluate(*argument.value);
      if (argument.name.empty()) {
        given.places.push_back(std::move(value));
      } else {
        given.names.emplace_back(argument.name, std::move(value));
      }
    }
    return given;
  }

  Value slice(const Expression& e) {
    const Value of = evaluate(*e.parts[0]);
    if (!of.is_text() && !of.is_list()) fail(std::string("a ") + of.type_name() + " has no parts");
    const List items = items_of(of);
    const auto size = static_cast<int64_t>(items.size());
    const auto bound = [&](size_t part, int64_t otherwise) -> int64_t {
      if (!e.parts[part]) return otherwise;
      const Value value = evaluate(*e.parts[part]);
      if (value.kind == Kind::none) return otherwise;
      if (!value.is_whole()) fail("a slice is of whole numbers");
      return value.whole;
    };
    const int64_t step = bound(3, 1);
    if (step == 0) fail("a slice cannot have the step 0");
    const auto place = [&](int64_t at) {
      if (at < 0) at = at < -size ? -1 : at + size;
      const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
      return std::min(std::max(at, low), high);
    };
    const int64_t begin =
        e.parts[1] ? place(bound(1, step > 0 ? 0 : size)) : (step > 0 ? 0 : size - 1);
    const int64_t end =
        e.parts[2] ? place(bound(2, step > 0 ? size : -size - 1)) : (step > 0 ? size : -1);
    List found;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
      found.push_back(items[static_cast<size_t>(i)]);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    budget_.keep(found.size() * 16);
    if (of.is_list()) return Value::of(std::move(found), of.kind);
    std::string text;
    for (const Value& c : found) text += *c.string;
    return Value::text(std::move(text));
  }

  Value call(const Expression& e) {
    const Expression& callee = *e.parts[0];
    if (callee.kind == Expression::Kind::attribute) {
      const Value on = evaluate(*callee.parts[0]);
      if (has_method(on, callee.text)) return call_method(on, callee.text, arguments(e), budget_);
      const Value found = attribute_of(on, callee.text);
      if (found.kind == Kind::macro) return call_macro(*found.macro, arguments(e));
      fail("a template cannot call '" + callee.text + "' of a " + on.type_name());
    }
    const Value function = evaluate(callee);
    Arguments given = arguments(e);
    if (function.kind == Kind::macro) return call_macro(*function.macro, given);
    if (function.kind != Kind::function || callee.kind != Expression::Kind::name) {
      fail((callee.text.empty() ? "a value" : "'" + callee.text + "'") +
           (function.is_defined() ? " cannot be called" : " is undefined"));
    }
    return call_global(callee.text, given, budget_);
  }

  Value call_macro(const Macro& macro, const Arguments& given) {
    const Depth depth(depth_);
    const Statement& definition = *macro.definition;
    if (given.places.size() > definition.parameters.size())
      fail("the macro '" + definition.text + "' takes fewer values");
    Names names;
    for (size_t i = 0; i < definition.parameters.size(); ++i) {
      const Parameter& parameter = definition.parameters[i];
      Value value = given.get(i, parameter.name);
      if (!value.is_defined() && parameter.otherwise) value = evaluate(*parameter.otherwise);
      names[parameter.name] = value.is_defined() ? value : Value::undefined(parameter.name);
    }
    // It sees the template's own names, and none of its caller's.
    std::vector<Names> outer;
    while (scopes_.size() > 1) {
      outer.push_back(std::move(scopes_.back()));
      scopes_.pop_back();
    }
    scopes_.push_back(std::move(names));
    std::string text;
    run(definition.blocks[0], text);
    scopes_.pop_back();
    while (!outer.empty()) {
      scopes_.push_back(std::move(outer.back()));
      outer.pop_back();
    }
    return Value::text(std::move(text));
  }

  Value unary(const Expression& e) {
    const Value value = evaluate(*e.parts[0]);
    if (e.text == "not") return Value::boolean(!value.truthy());
    return signed_value(e.text, value);
  }

  Value binary(const Expression& e) {
    const Value left = evaluate(*e.parts[0]);
    if (e.text == "and") return left.truthy() ? evaluate(*e.parts[1]) : left;
    if (e.text == "or") return left.truthy() ? left : evaluate(*e.parts[1]);
    const Value right = evaluate(*e.parts[1]);
    if (e.text == "~") return joined(left.str(), right.str(), budget_);
    for (const Value* side : {&left, &right}) {
      if (!side->is_defined())
        fail("'" + (side->string ? *side->string : "a value") + "' is undefined");
    }
    if (left.is_number() && right.is_number()) return calculated(e.text, left, right);
    if (e.text == "+" && left.is_text() && right.is_text())
      return joined(*left.string, *right.string, budget_);
    if (e.text == "+" && left.is_list() && left.kind == right.kind) {
      List items = *left.list;
      items.insert(items.end(), right.list->begin(), right.list->end());
      budget_.keep(items.size() * 16);
      return Value::of(std::move(items), left.kind);
    }
    if (e.text == "*" && (left.is_whole() || right.is_whole()))
      return repeated(left.is_whole() ? right : left, left.is_whole() ? left.whole : right.whole,
                      budget_);
    fail(std::string("a ") + left.type_name() + " " + e.text + " a " + right.type_name() +
         " is not possible");
  }

  Value comparison(const Expression& e) {
    Value left = evaluate(*e.parts[0]);
    for (size_t i = 0; i < e.operators.size(); ++i) {
      Value right = evaluate(*e.parts[i + 1]);
      const std::string& sign = e.operators[i];
      bool good = false;
      if (sign == "==") {
        good = equal(left, right);
      } else if (sign == "!=") {
        good = !equal(left, right);
      } else if (sign == "in" || sign == "not in") {
        good = contains(right, left) == (sign == "in");
      } else {
        const int order = compare(left, right);
        good = sign == "<"    ? order < 0
               : sign == "<=" ? order <= 0
               : sign == ">"  ? order > 0
                              : order >= 0;
      }
      if (!good) return Value::boolean(false);
      left = std::move(right);
    }
    return Value::boolean(true);
  }

  std::vector<Names> scopes_;
  Budget budget_;
  Flow flow_ = Flow::on;
  int depth_ = 0;
  int line_ = 0;
};

}  // namespace

std::string Template::render(std::map<std::string, Value> values) const {
  Interpreter interpreter(std::move(values));
  std::string text;
  try {
    interpreter.run(statements_, text);
  } catch (const TemplateError& error) {
    throw TemplateError("The chat template failed at line " + std::to_string(interpreter.line()) +
                            ": " + error.what(),
                        "Check the messages against what the model expects, or give the whole "
                        "prompt yourself with --raw");
  }
  return text;
}

}  // namespace satchel::llm::jinja
