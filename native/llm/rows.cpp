#include "rows.h"

#include "errors.h"
#include "model.h"

namespace satchel::llm {

namespace {

// [words, hidden]
std::vector<float> embed(const Model& model, std::span<const uint32_t> words, size_t hidden) {
  const std::optional<size_t> number = model.find_method("embed_tokens");
  if (!number)
    throw ConfigError(model.path() + " takes no embeddings", "Export it with --embeddings.");
  const auto most = static_cast<size_t>(most_tokens(model.program().methods()[*number]));
  if (most == 0) throw ExecutionError("the method embed_tokens takes no tokens");
  std::vector<float> made;
  Instance& instance = model.instance();
  const std::lock_guard<std::recursive_mutex> lock(instance.mutex());
  while (!words.empty()) {
    const std::span<const uint32_t> block = words.first(std::min(most, words.size()));
    const std::vector<int32_t> ids(block.begin(), block.end());
    const auto count = static_cast<int64_t>(ids.size());
    const auto outputs = instance.run(*number, {{DType::i32, {count}, ids.data()}});
    if (outputs.size() != 1 || outputs[0].dtype != DType::f32 ||
        outputs[0].shape != std::vector<int64_t>{count, static_cast<int64_t>(hidden)})
      throw ExecutionError("the method embed_tokens does not give what the layers take");
    const auto* from = static_cast<const float*>(outputs[0].data);
    made.insert(made.end(), from, from + block.size() * hidden);
    words = words.subspan(block.size());
  }
  return made;
}

}  // namespace

Tokens words_of(std::span<const uint32_t> tokens) {
  Tokens words;
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(words),
               [](uint32_t token) { return !is_row(token); });
  return words;
}

std::vector<float> embedded(const Model& model, std::span<const uint32_t> tokens, RowSource& rows) {
  std::vector<float> made;
  size_t hidden = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!is_row(tokens[i])) continue;
    const std::span<const float> row = rows.row(tokens[i]);
    if (hidden == 0) {
      hidden = row.size();
      made.resize(tokens.size() * hidden);
    }
    if (row.size() != hidden) throw ExecutionError("the rows of images are not of one length");
    std::copy(row.begin(), row.end(), made.data() + i * hidden);
  }
  const std::vector<float> words = embed(model, words_of(tokens), hidden);
  const float* from = words.data();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (is_row(tokens[i])) continue;
    std::copy_n(from, hidden, made.data() + i * hidden);
    from += hidden;
  }
  return made;
}

}  // namespace satchel::llm
