// JSON documents: a program's metadata, and what commands print.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace satchel::llm {

class Json;
using JsonList = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;  // in the document's order

class Json {
 public:
  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int64_t value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(JsonList value) : value_(std::move(value)) {}
  Json(JsonObject value) : value_(std::move(value)) {}

  // Throws FormatError, which names the section, if the text is not JSON.
  static Json parse(std::string_view text, const std::string& section = "metadata");

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const int64_t* whole() const { return std::get_if<int64_t>(&value_); }
  const double* real() const { return std::get_if<double>(&value_); }
  const std::string* text() const { return std::get_if<std::string>(&value_); }
  const JsonList* list() const { return std::get_if<JsonList>(&value_); }
  const JsonObject* object() const { return std::get_if<JsonObject>(&value_); }
  JsonObject* object() { return std::get_if<JsonObject>(&value_); }

  // A whole or a real number; `otherwise` if it is none.
  double number(double otherwise) const;
  // A member of an object; null if it is none or has no such member.
  const Json& operator[](std::string_view name) const;

  // As Python's json.dumps writes it with ensure_ascii=False.
  std::string dump() const;
  void dump_to(std::string& text) const;

 private:
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, JsonList, JsonObject> value_;
};

// A text in quotation marks, with what JSON wants to be spelled out.
void append_quoted(std::string& to, std::string_view text);

}  // namespace satchel::llm
