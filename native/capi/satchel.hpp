// Satchel's C API as C++ classes: errors are exceptions, handles are objects.
// Header only.
#pragma once

#include <satchel.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace satchel_api {

// What went wrong, and what to do about it.
class Error : public std::runtime_error {
 public:
  explicit Error(satchel_status code)
      : std::runtime_error(satchel_error_message()), code(code), advice(satchel_error_advice()) {}

  satchel_status code;
  std::string advice;
};

inline void check(satchel_status status) {
  if (status != SATCHEL_OK) throw Error(status);
}

struct Options : satchel_generation_options {
  Options() : satchel_generation_options{} { size = sizeof(satchel_generation_options); }

  Options& limit(uint32_t tokens) { return max_new_tokens = tokens, *this; }
  Options& heat(double value) {
    return temperature = value, given |= SATCHEL_GIVEN_TEMPERATURE, *this;
  }
  Options& from_seed(uint64_t value) { return seed = value, given |= SATCHEL_GIVEN_SEED, *this; }
};

// An answer that is being made.
class Generation {
 public:
  explicit Generation(satchel_generation* handle) : handle_(handle) {}

  // Calls show(piece) for every piece of text as it comes, and returns all of
  // it.
  template <typename Show>
  std::string stream(const Show& show) {
    std::string whole;
    const char* piece = nullptr;
    size_t length = 0;
    satchel_status status;
    while ((status = satchel_next(handle_.get(), &piece, &length)) == SATCHEL_OK) {
      const std::string_view text(piece, length);
      if (!text.empty()) show(text);
      whole += text;
    }
    if (status != SATCHEL_END) throw Error(status);
    return whole;
  }
  std::string text() {
    return stream([](std::string_view) {});
  }
  satchel_generation_stats stats() const {
    satchel_generation_stats found{};
    found.size = sizeof found;
    check(satchel_generation_get_stats(handle_.get(), &found));
    return found;
  }

 private:
  struct Close {
    void operator()(satchel_generation* handle) const { satchel_generation_close(handle); }
  };
  std::unique_ptr<satchel_generation, Close> handle_;
};

// A conversation.
class Session {
 public:
  explicit Session(satchel_session* handle) : handle_(handle) {}

  void add(const std::string& role, const std::string& content) {
    check(satchel_session_add_message(handle_.get(), role.c_str(), content.c_str()));
  }
  void clear() { check(satchel_session_clear(handle_.get())); }
  Generation chat(std::string_view text, const Options& options = {}) {
    satchel_generation* made = nullptr;
    check(satchel_chat(handle_.get(), text.data(), text.size(), &options, &made));
    return Generation(made);
  }
  Generation complete(std::string_view text, const Options& options = {}) {
    satchel_generation* made = nullptr;
    check(satchel_complete(handle_.get(), text.data(), text.size(), &options, &made));
    return Generation(made);
  }

 private:
  struct Close {
    void operator()(satchel_session* handle) const { satchel_session_close(handle); }
  };
  std::unique_ptr<satchel_session, Close> handle_;
};

// A language model.
class Model {
 public:
  explicit Model(const std::string& path, uint32_t threads = 0) {
    satchel_model_options options{};
    options.size = sizeof options;
    options.threads = threads;
    satchel_model* made = nullptr;
    check(satchel_model_open(path.c_str(), &options, &made));
    handle_.reset(made);
  }

  Session session(const char* adapter = nullptr) const {
    satchel_session* made = nullptr;
    check(satchel_session_open(handle_.get(), adapter, &made));
    return Session(made);
  }
  std::vector<uint32_t> tokenize(std::string_view text, uint32_t flags = 0) const {
    size_t count = 0;
    check(satchel_tokenize(handle_.get(), text.data(), text.size(), flags, nullptr, 0, &count));
    std::vector<uint32_t> tokens(count);
    check(satchel_tokenize(handle_.get(), text.data(), text.size(), flags, tokens.data(), count,
                           &count));
    return tokens;
  }
  satchel_model_info info() const {
    satchel_model_info found{};
    found.size = sizeof found;
    check(satchel_model_get_info(handle_.get(), &found));
    return found;
  }

 private:
  struct Close {
    void operator()(satchel_model* handle) const { satchel_model_close(handle); }
  };
  std::unique_ptr<satchel_model, Close> handle_;
};

// A program that sorts pictures into classes.
class Classifier {
 public:
  explicit Classifier(const std::string& path, uint32_t threads = 0) {
    satchel_model_options options{};
    options.size = sizeof options;
    options.threads = threads;
    satchel_classifier* made = nullptr;
    check(satchel_classifier_open(path.c_str(), &options, &made));
    handle_.reset(made);
  }

  // Of the bytes of a PNG or a JPEG; labels live as long as the classifier.
  std::vector<satchel_class> classify(std::string_view file, size_t top = 5) const {
    std::vector<satchel_class> found(top);
    check(satchel_classify(handle_.get(), file.data(), file.size(), found.data(), top, &top));
    found.resize(top);
    return found;
  }

 private:
  struct Close {
    void operator()(satchel_classifier* handle) const { satchel_classifier_close(handle); }
  };
  std::unique_ptr<satchel_classifier, Close> handle_;
};

}  // namespace satchel_api
