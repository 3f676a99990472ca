// Chat templates: the part of Jinja that models' templates use, run with
// bounded work. It gives the text that jinja2 gives with trim_blocks and
// lstrip_blocks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "syntax.h"
#include "value.h"

namespace satchel::llm::jinja {

class Template {
 public:
  // Throws TemplateError if it cannot be parsed, or has what is not done here.
  explicit Template(std::string_view source) : statements_(parse(source)) {}
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  // Throws TemplateError if the template fails, or refuses the values.
  std::string render(std::map<std::string, Value> values) const;

 private:
  Block statements_;
};

}  // namespace satchel::llm::jinja
