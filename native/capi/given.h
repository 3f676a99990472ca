// What callers of the C API give, and what they are given.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "status.h"

namespace satchel::capi {

inline void require(bool good, const char* what) {
  if (!good) throw Misuse(std::string(what) + " is null");
}

inline std::string_view text_of(const char* text, size_t length) {
  require(text != nullptr || length == 0, "the text");
  return {text == nullptr ? "" : text, length};
}

// Of a struct of a caller that may be older or newer.
template <typename T>
size_t size_of(const T* given, const char* what) {
  if (given->size < sizeof(size_t) || given->size > 1 << 16)
    throw Misuse(std::string("the size of ") + what + " is not set");
  return given->size;
}

// What is missing in it is zero.
template <typename T>
T known_part(const T* given, const char* what) {
  T known{};
  if (given == nullptr) return known;
  std::memcpy(&known, given, std::min(size_of(given, what), sizeof known));
  return known;
}

template <typename T>
void give_part(T known, T* to, const char* what) {
  require(to != nullptr, what);
  known.size = size_of(to, what);
  std::memcpy(to, &known, std::min(known.size, sizeof known));
}

// As much as the caller has room for, and how much there is.
template <typename Found, typename To>
void give_all(const Found& found, To* to, size_t capacity, size_t* count) {
  std::copy_n(found.begin(), std::min(capacity, found.size()), to);
  *count = found.size();
}

}  // namespace satchel::capi
