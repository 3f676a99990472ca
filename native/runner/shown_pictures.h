// The pictures of run --image, and of /image in a conversation, by their files.
#pragma once

#include <string>
#include <vector>

#include "../llm/session.h"
#include "../vision_language/pictures.h"

namespace satchel::runner {

// A PNG or a JPEG. Throws an AdvisedError if the file is not there, or is none.
vision::Image open_picture_file(const std::string& path);

class ShownPictures {
 public:
  // Throws ConfigError if the session's model does not look at images.
  explicit ShownPictures(llm::Session& session);
  ~ShownPictures() { session_.show(nullptr); }
  ShownPictures(const ShownPictures&) = delete;
  ShownPictures& operator=(const ShownPictures&) = delete;

  // Goes with the next message.
  void add(const std::string& path) { files_.push_back(path); }
  bool empty() const { return files_.empty(); }

  // What the user says with the pictures since the last message. `before` is what was said with
  // marks of its own.
  llm::Message message(const std::string& text, const std::string& before = "") const;
  // The message was answered: its pictures stay in the conversation.
  void keep() { kept_ = files_.size(); }

  // Of a prompt as a template makes it, and of a text that is continued.
  llm::Tokens chat_prompt(const std::string& text);
  llm::Tokens text_prompt(const std::string& text);

 private:
  llm::Tokens prompt(const std::string& text, const vision_language::Pictures::Encode& encode);

  llm::Session& session_;
  vision_language::Pictures pictures_;
  std::vector<std::string> files_;
  size_t kept_ = 0;
};

}  // namespace satchel::runner
