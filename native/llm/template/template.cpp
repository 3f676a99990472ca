#include "template.h"

#include <cmath>
#include <ctime>

#include "../errors.h"
#include "functions.h"

namespace satchel::llm::jinja {

namespace {

constexpr size_t kMostOutput = 16 << 20;
constexpr int kDeepest = 200;
constexpr int64_t kLongestRange = 100000;  // jinja2's sandbox has the same

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

  static void set_entry(Dict& entries, const Value& key, Value value) {
    for (auto& [known, held] : entries) {
      if (equal(known, key)) {
        held = std::move(value);
        return;
      }
    }
    entries.emplace_back(key, std::move(value));
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
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step)
      found.push_back(items[static_cast<size_t>(i)]);
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
    return call_global(callee.text, given);
  }

  Value call_global(const std::string& name, const Arguments& given) {
    if (name == "raise_exception") fail(given.get(0, "message").str());
    if (name == "range") return range(given);
    if (name == "strftime_now") {
      const std::string pattern = given.get(0, "pattern").str();
      if (pattern.size() > 100) fail("the pattern of a date is too long");
      const std::time_t now = std::time(nullptr);
      std::tm parts{};
#ifdef _WIN32
      localtime_s(&parts, &now);
#else
      localtime_r(&now, &parts);
#endif
      char text[1024];
      return Value::text(
          std::string(text, std::strftime(text, sizeof text, pattern.c_str(), &parts)));
    }
    Dict entries;
    if (!given.places.empty()) {
      if (!given.places[0].is_dict()) fail(name + "() takes a mapping");
      entries = *given.places[0].dict;
    }
    for (const auto& [key, value] : given.names) set_entry(entries, Value::text(key), value);
    return Value::of(std::move(entries), name == "dict" ? Kind::dict : Kind::space);
  }

  Value range(const Arguments& given) {
    int64_t numbers[3] = {0, 0, 1};
    const size_t count = given.places.size();
    if (count < 1 || count > 3) fail("range takes one to three numbers");
    for (size_t i = 0; i < count; ++i) {
      if (!given.places[i].is_whole()) fail("range takes whole numbers");
      numbers[count == 1 ? 1 : i] = given.places[i].whole;
    }
    const auto [first, last, step] = numbers;
    if (step == 0) fail("range cannot have the step 0");
    List items;
    for (int64_t i = first; step > 0 ? i < last : i > last; i += step) {
      if (static_cast<int64_t>(items.size()) >= kLongestRange) fail("a range is too long");
      items.push_back(Value::integer(i));
    }
    budget_.keep(items.size() * 16);
    return Value::of(std::move(items));
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
    if (!value.is_number()) fail(std::string("a ") + value.type_name() + " has no sign");
    if (e.text == "+") return value.is_whole() ? Value::integer(value.whole) : value;
    return value.is_whole() ? Value::integer(-value.whole) : Value::number(-value.real);
  }

  Value binary(const Expression& e) {
    const Value left = evaluate(*e.parts[0]);
    if (e.text == "and") return left.truthy() ? evaluate(*e.parts[1]) : left;
    if (e.text == "or") return left.truthy() ? left : evaluate(*e.parts[1]);
    const Value right = evaluate(*e.parts[1]);
    if (e.text == "~") return joined(left.str(), right.str());
    for (const Value* side : {&left, &right}) {
      if (!side->is_defined())
        fail("'" + (side->string ? *side->string : "a value") + "' is undefined");
    }
    if (left.is_number() && right.is_number()) return calculated(e.text, left, right);
    if (e.text == "+" && left.is_text() && right.is_text())
      return joined(*left.string, *right.string);
    if (e.text == "+" && left.is_list() && left.kind == right.kind) {
      List items = *left.list;
      items.insert(items.end(), right.list->begin(), right.list->end());
      budget_.keep(items.size() * 16);
      return Value::of(std::move(items), left.kind);
    }
    if (e.text == "*" && (left.is_whole() || right.is_whole()))
      return repeated(left.is_whole() ? right : left, left.is_whole() ? left.whole : right.whole);
    fail(std::string("a ") + left.type_name() + " " + e.text + " a " + right.type_name() +
         " is not possible");
  }

  Value joined(const std::string& a, const std::string& b) {
    budget_.keep(a.size() + b.size());
    return Value::text(a + b);
  }

  Value repeated(const Value& what, int64_t times) {
    times = std::max<int64_t>(times, 0);
    const size_t size = what.is_text()   ? what.string->size()
                        : what.is_list() ? what.list->size() * 16
                                         : 1;
    if (times > 1 << 20) fail("something is repeated too often");
    budget_.step(static_cast<size_t>(times) * (1 + size / 16));
    if (what.is_text()) {
      std::string text;
      for (int64_t i = 0; i < times; ++i) text += *what.string;
      return Value::text(std::move(text));
    }
    if (!what.is_list()) fail(std::string("a ") + what.type_name() + " cannot be repeated");
    List items;
    for (int64_t i = 0; i < times; ++i)
      items.insert(items.end(), what.list->begin(), what.list->end());
    return Value::of(std::move(items), what.kind);
  }

  Value calculated(const std::string& sign, const Value& left, const Value& right) {
    const bool whole = left.is_whole() && right.is_whole();
    const double a = left.as_real(), b = right.as_real();
    if ((sign == "/" || sign == "//" || sign == "%") && b == 0) fail("a division by zero");
    if (sign == "/") return Value::number(a / b);
    if (whole && sign != "**") {
      int64_t result = 0;
      bool overflow = false;
      if (sign == "+") overflow = __builtin_add_overflow(left.whole, right.whole, &result);
      if (sign == "-") overflow = __builtin_sub_overflow(left.whole, right.whole, &result);
      if (sign == "*") overflow = __builtin_mul_overflow(left.whole, right.whole, &result);
      if (sign == "//" || sign == "%") {
        if (right.whole == -1) return Value::integer(sign == "%" ? 0 : -left.whole);
        const int64_t rest = left.whole % right.whole;
        const bool moves = rest != 0 && (rest < 0) != (right.whole < 0);
        result = sign == "%" ? rest + (moves ? right.whole : 0)
                             : left.whole / right.whole - (moves ? 1 : 0);
      }
      if (overflow) fail("a number is too large");
      return Value::integer(result);
    }
    if (sign == "+") return Value::number(a + b);
    if (sign == "-") return Value::number(a - b);
    if (sign == "*") return Value::number(a * b);
    if (sign == "//") return Value::number(std::floor(a / b));
    if (sign == "%") return Value::number(a - std::floor(a / b) * b);
    const double power = std::pow(a, b);
    if (!std::isfinite(power) || (whole && std::abs(power) > 9e15)) fail("a number is too large");
    return whole && b >= 0 ? Value::integer(static_cast<int64_t>(power)) : Value::number(power);
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
