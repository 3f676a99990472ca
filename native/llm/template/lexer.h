// Cuts a chat template in texts and tokens, with jinja2's trim_blocks and
// lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace satchel::llm::jinja {

struct Token {
  enum class Kind {
    data,
    begin_output,
    end_output,
    begin_block,
    end_block,
    name,
    text,
    whole,
    real,
    sign,
    end
  };

  Kind kind;
  std::string text;
  int line;
};

std::vector<Token> tokenize(std::string_view source);

}  // namespace satchel::llm::jinja
