// Prompts with pictures in them: rows' numbers in place of a mark, one for each row.
#pragma once

#include <functional>
#include <map>

#include "../llm/chat.h"
#include "../llm/rows.h"
#include "../runtime/sha256.h"
#include "preprocessing.h"

namespace satchel::vision_language {

// What a model sees. Pictures are known by their content: the same one has the same numbers in a
// later prompt, so that a session finds it in its cache, and it is looked at when a session needs
// its rows, and not before.
class Pictures final : public llm::RowSource {
 public:
  // The model outlives it. Throws ConfigError if it does not look at images, and FormatError if
  // what the program says of them is damaged.
  explicit Pictures(const llm::Model& model);

  // What stands for a picture in a text.
  const std::string& mark() const { return mark_; }
  // How many there are in a text.
  size_t marks_in(const std::string& text) const;
  // What a user says with pictures before it, as the model's template takes it.
  llm::Message message(const std::string& text, size_t count) const;
  // A text with pictures before it, unless it says where they are.
  std::string plain(const std::string& text, size_t count) const;

  using Open = std::function<vision::Image(size_t number)>;
  using Encode = std::function<llm::Tokens(const std::string& text)>;
  // The tokens of a prompt with `count` pictures. They are opened one after the other, and their
  // rows are there until the next prompt. Throws ConfigError if the text has other than one mark
  // for each, and ContextFullError if they do not fit.
  llm::Tokens tokens(const std::string& text, size_t count, const Open& open, const Encode& encode);

  std::span<const float> row(uint32_t number) override;

 private:
  // What one mark stands for: frames until it is looked at, and then rows.
  struct View {
    Layout layout;
    std::vector<vision::Image> frames;
    Rows rows;
  };
  using Views = std::map<uint32_t, View>;  // by the number of the first row

  void require_room(int64_t rows) const;
  uint32_t first_number(const View& view);
  void look(View& view);

  const llm::Model& model_;
  std::unique_ptr<Preprocessing> preprocessing_;
  uint32_t token_ = 0;
  std::string mark_;
  bool in_template_ = false;            // the chat template writes the marks itself
  size_t see_ = 0;                      // the method's number
  int64_t hidden_ = 0;                  // numbers of a row
  std::map<Digest, uint32_t> numbers_;  // of first rows, by content
  uint32_t next_number_ = llm::kFirstRow;
  Views views_;  // of the latest prompt
};

}  // namespace satchel::vision_language
