// What satchel-run can do, one function for each command; they return the exit
// status.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../llm/json.h"

namespace satchel::runner {

// The command line is wrong; exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

int run(int argc, char** argv);
int chat(int argc, char** argv);
int bench(int argc, char** argv);
int inspect(int argc, char** argv);
int verify(int argc, char** argv);
int tokenize(int argc, char** argv);
int transcribe(int argc, char** argv);

// The bytes of a file, or of standard input for "-".
std::string read_file(const std::string& path);

// A text that a terminal can show: what it could be steered with is spelled out, as names and texts
// come from files.
std::string shown(std::string_view text);
// A remark on standard error; a line of the result and a JSON document on standard output.
void say(const std::string& text);
void emit(const std::string& text);
void print_json(const llm::Json& document);
// A piece of an answer: as it is to a file or a pipe, and shown on a terminal.
void emit_answer(std::string_view piece);
// While it lives, what others print on standard output goes to standard error: results alone belong
// there, and vendors' libraries print what they like.
class OthersOutput {
 public:
  OthersOutput();
  ~OthersOutput();
  OthersOutput(const OthersOutput&) = delete;
  OthersOutput& operator=(const OthersOutput&) = delete;

 private:
  int kept_;
};
// From here on a crash in a vendor's library is told, and the exit status is 1.
void watch_vendor_crashes();
// Whether all that was printed has reached its place.
bool is_written();
std::string megabytes(uint64_t bytes);
double median(std::vector<double> values);
// The most memory that the process has had, in bytes; 0 if the system does not
// tell.
uint64_t peak_memory();

}  // namespace satchel::runner
