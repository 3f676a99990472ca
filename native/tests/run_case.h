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

Outcome run_case(const Case& c, const satchel::KernelTable& kernels);
