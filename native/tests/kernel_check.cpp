// Runs test cases from a file with every table of kernels that this CPU has, and reports the
// differences from what the file expects, one line of JSON for each table and case.
//
//   kernel_check                 which tables there are, and which one is used
//   kernel_check <cases> [table]
//
// Exit status: 0 when every case was run, whatever it gave; 2 for a wrong file or name; 3 when a
// kernel touched memory that is not its own.

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "machine.h"
#include "run_case.h"

using namespace satchel;

namespace {

char running[256];  // what to name when a kernel faults

void report_fault(int) {
  const char* said = "a kernel reads or writes past a buffer: ";
  (void)!write(STDERR_FILENO, said, std::strlen(said));
  (void)!write(STDERR_FILENO, running, std::strlen(running));
  (void)!write(STDERR_FILENO, "\n", 1);
  _exit(3);
}

bool close(double actual, double expected, double rtol, double atol) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (std::isinf(expected)) return actual == expected;
  return std::fabs(actual - expected) <= atol + rtol * std::fabs(expected);
}

void print_strings(const char* key, const std::vector<std::string>& values) {
  std::printf("\"%s\": [", key);
  for (size_t i = 0; i < values.size(); ++i) {
    std::printf("%s\"%s\"", i == 0 ? "" : ", ", values[i].c_str());
  }
  std::printf("]");
}

void check(const Case& c, const KernelTable& kernels) {
  std::snprintf(running, sizeof running, "table %s, case %s", kernels.name, c.name.c_str());
  const Outcome outcome = run_case(c, kernels);
  const double rtol = c.number("rtol"), atol = c.number("atol");
  size_t values = 0, wrong = 0;
  std::string first;
  for (const auto& [name, actual] : outcome.outputs) {
    const auto found = c.doubles.find("expect." + name);
    if (found == c.doubles.end() || found->second.size() != actual.size()) {
      throw std::runtime_error(c.name + ": the expected " + name + " are missing or too few");
    }
    for (size_t i = 0; i < actual.size(); ++i, ++values) {
      if (close(actual[i], found->second[i], rtol, atol)) continue;
      if (wrong++ == 0) {
        char text[128];
        std::snprintf(text, sizeof text, "%s[%zu] is %.9g, not %.9g", name.c_str(), i, actual[i],
                      found->second[i]);
        first = text;
      }
    }
  }
  std::printf(
      "{\"table\": \"%s\", \"case\": \"%s\", \"values\": %zu, \"wrong\": %zu, "
      "\"first_wrong\": \"%s\", ",
      kernels.name, c.name.c_str(), values, wrong, first.c_str());
  print_strings("changed_bits", outcome.changed_bits);
  std::printf("}\n");
}

void show_machine() {
  const char* selected = selected_kernels().name;
  std::vector<std::string> names;
  for (const KernelTable* table : available_kernels()) names.emplace_back(table->name);
  std::printf("{");
  print_strings("available", names);
  std::printf(", \"selected\": \"%s\", ", selected);
  print_strings("features", cpu_features());
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGSEGV, report_fault);
  std::signal(SIGBUS, report_fault);
  try {
    if (argc < 2) {
      show_machine();
      return 0;
    }
    const std::vector<Case> cases = read_cases(argv[1]);
    for (const KernelTable* table : available_kernels()) {
      if (argc > 2 && kernels_by_name(argv[2]).name != table->name) continue;
      for (const Case& c : cases) check(c, *table);
    }
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
