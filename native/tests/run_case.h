// Runs one test case with one table of kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "case_file.h"
#include "kernels.h"

struct Outcome {
  std::map<std::string, std::vector<double>> outputs;
  // Ways to split or repeat the work that did not give the same bits.
  std::vector<std::string> changed_bits;
};

using Runner = void (*)(const Case& c, const satchel::KernelTable& kernels, Outcome& outcome);
// By op: what only images need.
const std::map<std::string, Runner>& image_runners();

Outcome run_case(const Case& c, const satchel::KernelTable& kernels);
