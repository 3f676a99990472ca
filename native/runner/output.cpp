// What all commands print with.
#include <cstdint>
#include <cstdio>

#include "../llm/text.h"
#include "commands.h"
#ifdef _WIN32
#include <io.h>
#else
#include <unistd.h>
#endif

namespace satchel::runner {

namespace {

bool to_terminal() {
#ifdef _WIN32
  return _isatty(_fileno(stdout)) != 0;
#else
  return isatty(fileno(stdout)) != 0;
#endif
}

// Control characters but for tab and new line, and marks that turn the direction of a text.
bool is_hidden(char32_t letter) {
  return (letter < 0x20 && letter != '\t' && letter != '\n') ||
         (letter >= 0x7f && letter <= 0x9f) || letter == 0x61c || letter == 0x200e ||
         letter == 0x200f || (letter >= 0x2028 && letter <= 0x202e) ||
         (letter >= 0x2066 && letter <= 0x2069);
}

// The letter at the beginning of a text, and how many bytes it has: 0 if they are no UTF-8.
char32_t first_letter(std::string_view text, size_t& size) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  size = byte(0) < 0x80 ? 1 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
  if (size > text.size() || !llm::is_utf8(text.substr(0, size))) {
    size = 0;
    return byte(0);
  }
  char32_t letter = size == 1 ? byte(0) : byte(0) & (0xff >> (size + 1));
  for (size_t i = 1; i < size; ++i) letter = letter << 6 | (byte(i) & 0x3f);
  return letter;
}

// With hidden letters, and bytes that are no UTF-8, as numbers; `narrow` is the form of small ones.
std::string spelled_out(std::string_view text, const char* narrow) {
  std::string result;
  while (!text.empty()) {
    size_t size = 0;
    const char32_t letter = first_letter(text, size);
    if (size > 0 && !is_hidden(letter)) {
      result += text.substr(0, size);
    } else {
      char number[16];
      std::snprintf(number, sizeof number, letter < 0x100 ? narrow : "\\u%04x",
                    static_cast<unsigned>(letter));
      result += number;
    }
    text.remove_prefix(size > 0 ? size : 1);
  }
  return result;
}

}  // namespace

std::string shown(std::string_view text) { return spelled_out(text, "\\x%02x"); }

void say(const std::string& text) { std::fprintf(stderr, "%s\n", shown(text).c_str()); }

void emit(const std::string& text) { std::printf("%s\n", shown(text).c_str()); }

void emit_answer(std::string_view piece) {
  const std::string text = to_terminal() ? shown(piece) : std::string(piece);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_json(const llm::Json& document) {
  std::printf("%s\n", spelled_out(document.dump(), "\\u%04x").c_str());
}

OthersOutput::OthersOutput() {
  std::fflush(stdout);
  kept_ = dup(STDOUT_FILENO);
  if (kept_ >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
}

OthersOutput::~OthersOutput() {
  if (kept_ < 0) return;
  std::fflush(stdout);
  dup2(kept_, STDOUT_FILENO);
  close(kept_);
}

bool is_written() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

std::string megabytes(uint64_t bytes) {
  char text[32];
  const auto size = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000)
    std::snprintf(text, sizeof text, "%.2f GB", size / 1e9);
  else if (bytes >= 1'000'000)
    std::snprintf(text, sizeof text, "%.1f MB", size / 1e6);
  else
    std::snprintf(text, sizeof text, "%.1f kB", size / 1e3);
  return text;
}

}  // namespace satchel::runner
