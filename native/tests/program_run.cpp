// Opens programs and runs their methods, on a machine without Python: what the tests compare with
// the reference.
//
//   program_run <jobs> <results> [threads]
//
// Jobs are text lines, with the bytes of each array after its line; results have the same form.
//   program <path>                     a new instance, whose states are empty
//   call <method>
//   array <dtype> <dimensions ...>     an input
//   <bytes>
//   end                                runs the call
// A result is `call`, `array` for each output and `end`, or `error <what was wrong>`, which a
// program that does not open is too. Exit status 2: the jobs cannot be read; 3: a worker of the
// thread pool allocated memory, which could throw where nobody catches.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
#include <thread>

#include "errors.h"
#include "instance.h"

using namespace satchel;

namespace {

const std::thread::id kCaller = std::this_thread::get_id();

}  // namespace

// Not inlined, or gcc takes the halves of a pair for each other's mismatch.
__attribute__((noinline)) void* operator new(size_t size) {
  // Workers do nothing but the pieces of parallel_for.
  if (std::this_thread::get_id() != kCaller && kCaller != std::thread::id()) {
    std::fputs("an allocation inside parallel_for\n", stderr);
    std::_Exit(3);
  }
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}

__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

struct OwnedArray {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

DType dtype_named(const std::string& name) {
  for (uint8_t i = 0; i < kDTypeCount; ++i) {
    if (name == dtype_name(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  throw std::runtime_error("there is no dtype '" + name + "'");
}

OwnedArray read_array(std::istringstream& line, std::istream& file) {
  std::string name;
  line >> name;
  OwnedArray array{dtype_named(name), {}, {}};
  for (int64_t dim; line >> dim;) array.shape.push_back(dim);
  const std::optional<uint64_t> size = tensor_bytes(array.dtype, array.shape);
  if (!size || *size > uint64_t{1} << 32) throw std::runtime_error("an array is too large");
  array.bytes.resize(*size);
  file.read(reinterpret_cast<char*>(array.bytes.data()), static_cast<std::streamsize>(*size));
  if (!file || file.get() != '\n') throw std::runtime_error("an array is cut off");
  return array;
}

size_t method_named(const Program& program, const std::string& name) {
  for (size_t i = 0; i < program.methods().size(); ++i) {
    if (program.methods()[i].name == name) return i;
  }
  throw ExecutionError("there is no method '" + name + "'");
}

void write_outputs(Instance& instance, const std::vector<ArrayView>& outputs, std::ostream& to) {
  for (const ArrayView& view : outputs) {
    std::vector<uint8_t> bytes(*tensor_bytes(view.dtype, view.shape));
    instance.cpu().copy(static_cast<const uint8_t*>(view.data), bytes.size(), bytes.data());
    to << "array " << dtype_name(view.dtype);
    for (const int64_t dim : view.shape) to << ' ' << dim;
    to << '\n';
    to.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
    to << '\n';
  }
  to << "end\n";
}

class Runner {
 public:
  explicit Runner(int threads) : threads_(threads) {}

  void open(const std::string& path, std::ostream& to) {
    instance_.reset();
    try {
      program_ = std::make_shared<Program>(path);
      instance_ = std::make_unique<Instance>(program_, threads_);
      to << "program " << instance_->cpu().kernels() << '\n';
    } catch (const std::runtime_error& error) {
      to << "error " << error.what() << '\n';
    }
  }

  void call(const std::string& method, const std::vector<OwnedArray>& arrays, std::ostream& to) {
    try {
      if (!instance_) throw ExecutionError("no program is open");
      std::vector<ArrayView> inputs;
      for (const OwnedArray& a : arrays) inputs.push_back({a.dtype, a.shape, a.bytes.data()});
      const auto outputs = instance_->run(method_named(*program_, method), inputs);
      to << "call " << method << '\n';
      write_outputs(*instance_, outputs, to);
    } catch (const ExecutionError& error) {
      to << "error " << error.what() << '\n';
    }
  }

 private:
  int threads_;
  std::shared_ptr<const Program> program_;
  std::unique_ptr<Instance> instance_;
};

void run_jobs(std::istream& jobs, std::ostream& results, int threads) {
  Runner runner(threads);
  std::string method;
  std::vector<OwnedArray> inputs;
  for (std::string text; std::getline(jobs, text);) {
    std::istringstream line(text);
    std::string word;
    line >> word;
    if (word == "program") {
      runner.open(text.substr(text.find(' ') + 1), results);
    } else if (word == "call") {
      line >> method;
      inputs.clear();
    } else if (word == "array") {
      inputs.push_back(read_array(line, jobs));
    } else if (word == "end") {
      runner.call(method, inputs, results);
    } else {
      throw std::runtime_error("unknown line '" + text + "'");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s jobs results [threads]\n", argv[0]);
    return 2;
  }
  try {
    std::ifstream jobs(argv[1], std::ios::binary);
    if (!jobs) throw std::runtime_error(std::string("cannot open ") + argv[1]);
    std::ofstream results(argv[2], std::ios::binary);
    run_jobs(jobs, results, argc > 3 ? std::atoi(argv[3]) : 2);
    results.flush();
    if (!results) throw std::runtime_error(std::string("cannot write ") + argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
