#include "shown_pictures.h"

#include <sys/stat.h>

#include "../llm/errors.h"
#include "commands.h"

namespace satchel::runner {

using llm::Tokenizer;

vision::Image open_picture_file(const std::string& path) {
  struct stat found{};
  if (stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode))
    throw ConfigError(path + " is not there", "Give the path of an image.");
  const std::string data = read_file(path);
  return vision::read_image({reinterpret_cast<const uint8_t*>(data.data()), data.size()}, path,
                            vision::Alpha::on_white);  // as the models' processors have it
}

ShownPictures::ShownPictures(llm::Session& session)
    : session_(session), pictures_(session.model()) {
  session_.show(&pictures_);
}

llm::Message ShownPictures::message(const std::string& text, const std::string& before) const {
  if (pictures_.marks_in(before) + pictures_.marks_in(text) == files_.size() - kept_)
    return {"user", text};
  return pictures_.message(text, files_.size() - kept_);
}

llm::Tokens ShownPictures::prompt(const std::string& text,
                                  const vision_language::Pictures::Encode& encode) {
  const auto open = [&](size_t number) { return open_picture_file(files_[number]); };
  return pictures_.tokens(text, files_.size(), open, encode);
}

llm::Tokens ShownPictures::chat_prompt(const std::string& text) {
  const Tokenizer& tokenizer = session_.model().tokenizer();
  const auto encode = [&](const std::string& whole) { return tokenizer.encode(whole); };
  return files_.empty() ? encode(text) : prompt(text, encode);
}

llm::Tokens ShownPictures::text_prompt(const std::string& text) {
  const Tokenizer& tokenizer = session_.model().tokenizer();
  return prompt(pictures_.plain(text, files_.size()),
                [&](const std::string& whole) { return tokenizer.encode_prompt(whole); });
}

}  // namespace satchel::runner
