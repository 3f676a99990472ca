// What stands for images in a prompt: rows of numbers, as the layers see words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer.h"

namespace satchel::llm {

class Model;

// Among the tokens of a prompt, numbers from here on are those of rows.
inline constexpr uint32_t kFirstRow = 1u << 31;
inline bool is_row(uint32_t token) { return token >= kFirstRow; }
inline bool shows(std::span<const uint32_t> tokens) {
  return std::any_of(tokens.begin(), tokens.end(), is_row);
}
// The tokens that are some.
Tokens words_of(std::span<const uint32_t> tokens);

// Gives a session the rows of a prompt's images, when it needs them.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Valid until the next call. Throws ExecutionError if there is no such row (any more).
  virtual std::span<const float> row(uint32_t number) = 0;
};

// Words, by the program's `embed_tokens`, and rows together: [tokens, hidden].
std::vector<float> embedded(const Model& model, std::span<const uint32_t> tokens, RowSource& rows);

}  // namespace satchel::llm
