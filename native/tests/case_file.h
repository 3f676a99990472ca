// Test cases in a file: text lines, with the bytes of each array after its line.
//   case <op> <name>
//   number <key> <value>
//   array <key> <f4|f8|u1|u2> <count>
//   <bytes>
//   end
// Arrays named "expect.<output>" are f8: what the kernel should give.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct Case {
  std::string op, name;
  std::map<std::string, double> numbers;
  std::map<std::string, std::vector<float>> floats;
  std::map<std::string, std::vector<double>> doubles;
  std::map<std::string, std::vector<uint8_t>> bytes;
  std::map<std::string, std::vector<uint16_t>> words;

  double number(const std::string& key) const {
    const auto found = numbers.find(key);
    if (found == numbers.end()) throw std::runtime_error(name + ": there is no number " + key);
    return found->second;
  }
  int64_t integer(const std::string& key) const { return static_cast<int64_t>(number(key)); }
};

// Throws std::runtime_error for a file that is not like that.
std::vector<Case> read_cases(const std::string& path);
