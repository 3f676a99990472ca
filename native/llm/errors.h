// The errors of language models beside those of the runtime.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "../runtime/errors.h"

namespace satchel {

// An error that says what to do next.
class AdvisedError : public std::runtime_error {
 public:
  explicit AdvisedError(const std::string& message, std::string advice = "")
      : std::runtime_error(message), advice(std::move(advice)) {}

  std::string advice;
};

// Something was asked for that cannot be.
class ConfigError : public AdvisedError {
 public:
  using AdvisedError::AdvisedError;
};

// A text does not fit into the context.
class ContextFullError : public AdvisedError {
 public:
  using AdvisedError::AdvisedError;
};

// A chat template cannot be read, or fails for these messages.
class TemplateError : public AdvisedError {
 public:
  using AdvisedError::AdvisedError;
};

}  // namespace satchel
