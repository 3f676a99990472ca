// The errors of the native core. Each becomes a class of satchel.errors in Python.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace satchel {

// A program file is not valid: where, why, and what to do.
class FormatError : public std::runtime_error {
 public:
  FormatError(
      std::string section, uint64_t offset, const std::string& message,
      std::string advice = "The file is damaged or was not written by Satchel; export it again.")
      : std::runtime_error(message),
        section(std::move(section)),
        offset(offset),
        advice(std::move(advice)) {}

  std::string section;
  uint64_t offset;
  std::string advice;
};

// Bytes are not those that were written.
class ChecksumError : public FormatError {
 public:
  using FormatError::FormatError;
};

// A method was called with inputs that it cannot take.
class ExecutionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A text or tokens that a tokenizer cannot take.
class TokenizerError : public std::runtime_error {
 public:
  explicit TokenizerError(const std::string& message, std::string advice = "")
      : std::runtime_error(message), advice(std::move(advice)) {}

  std::string advice;
};

// There are no pages left for more rows of the caches.
class CacheFullError : public ExecutionError {
 public:
  using ExecutionError::ExecutionError;
};

}  // namespace satchel
