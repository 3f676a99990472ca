#include "case_file.h"

#include <fstream>
#include <sstream>

namespace {

template <class T>
std::vector<T> read_array(std::ifstream& file, size_t count) {
  std::vector<T> values(count);
  const auto bytes = static_cast<std::streamsize>(count * sizeof(T));
  file.read(reinterpret_cast<char*>(values.data()), bytes);
  if (!file || file.get() != '\n') throw std::runtime_error("an array is cut off");
  return values;
}

void read_item(std::ifstream& file, std::istringstream& line, const std::string& word, Case& c) {
  std::string key, type;
  size_t count = 0;
  if (word == "number") {
    line >> key;
    line >> c.numbers[key];
  } else if (word == "array") {
    line >> key >> type >> count;
    if (type == "f4")
      c.floats[key] = read_array<float>(file, count);
    else if (type == "f8")
      c.doubles[key] = read_array<double>(file, count);
    else if (type == "u1")
      c.bytes[key] = read_array<uint8_t>(file, count);
    else if (type == "u2")
      c.words[key] = read_array<uint16_t>(file, count);
    else
      throw std::runtime_error("unknown type of array '" + type + "'");
  } else {
    throw std::runtime_error("unknown line '" + line.str() + "'");
  }
  if (!line) throw std::runtime_error("cannot read the line '" + line.str() + "'");
}

}  // namespace

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<Case> cases;
  bool inside = false;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string word;
    line >> word;
    if (word == "case" && !inside) {
      cases.emplace_back();
      line >> cases.back().op >> cases.back().name;
      inside = true;
    } else if (word == "end" && inside) {
      inside = false;
    } else if (inside) {
      read_item(file, line, word, cases.back());
    } else {
      throw std::runtime_error("expected a case, not '" + text + "'");
    }
  }
  if (inside) throw std::runtime_error("the last case has no end");
  return cases;
}
