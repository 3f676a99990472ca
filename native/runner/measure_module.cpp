// bench of programs that are no language models: how long one call takes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "../llm/errors.h"
#include "../llm/model.h"
#include "../llm/random.h"
#include "../llm/verify.h"
#include "../runtime/instance.h"
#include "classify.h"
#include "commands.h"

namespace satchel::runner {

namespace {

using Clock = std::chrono::steady_clock;

// Arrays of a method's types, as the reference's benchmark has them: floats that vary, and zeros
// for anything that may be an index. Sizes that change are 1.
class Inputs {
 public:
  explicit Inputs(const Method& method) {
    const uint32_t zero = 0;
    llm::Random random(std::span(&zero, 1));
    for (const uint32_t number : method.inputs) {
      const ValueInfo& value = method.values[number];
      ArrayView view{value.dtype == DType::f16 ? DType::f32 : value.dtype, value.shape, nullptr};
      size_t count = 1;
      for (int64_t& size : view.shape) {
        size = std::max<int64_t>(size, 1);
        count *= static_cast<size_t>(size);
      }
      memory_.emplace_back(count * dtype_size(view.dtype));
      if (view.dtype == DType::f32) {
        auto* numbers = reinterpret_cast<float*>(memory_.back().data());
        for (size_t i = 0; i < count; ++i)  // of a variance of 1
          numbers[i] = static_cast<float>((random.next() * 2 - 1) * std::sqrt(3.0));
      }
      view.data = memory_.back().data();
      views_.push_back(view);
    }
  }

  const std::vector<ArrayView>& views() const { return views_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<ArrayView> views_;
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

}  // namespace

int bench_module(const Arguments& given) {
  const std::string& path = given.places()[0];
  const int64_t warmup = given.whole("warmup", 0).value_or(1);
  const int64_t runs = given.whole("runs", 1).value_or(3);
  const std::chrono::duration<double> rest(given.number("cool-down").value_or(0));
  if (given.text("target").value_or(llm::Model::kCpu) != llm::Model::kCpu)
    throw ConfigError("models that are no language models run on the CPU here",
                      "Leave --target out, or use Python's satchel.");
  const auto program = std::make_shared<Program>(path);
  Instance instance(program, static_cast<int>(given.whole("threads", 1, kMostThreads).value_or(0)));
  const Method& method = program->methods().front();  // forward, or encode of one that hears
  const Inputs inputs(method);
  for (int64_t i = 0; i < std::max<int64_t>(warmup, 1); ++i) instance.run(0, inputs.views());
  std::this_thread::sleep_for(rest);
  std::vector<double> times;
  double sum = 0;
  for (int64_t i = 0; i < runs; ++i) {
    const Clock::time_point start = Clock::now();
    instance.run(0, inputs.views());
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    sum += times.back();
  }
  const double mean = sum / static_cast<double>(runs), usual = median(times);
  const double late = percentile(times, 0.95);
  const uint64_t memory = peak_memory();
  const ProgramFile& file = program->file();
  const CpuExecutor& cpu = instance.cpu();
  if (given.has("json")) {
    using llm::Json, llm::JsonList, llm::JsonObject;
    print_json(Json(JsonObject{
        {"mean_s", mean},
        {"median_s", usual},
        {"p95_s", late},
        {"fastest_s", *std::min_element(times.begin(), times.end())},
        {"calls_s", 1 / usual},
        {"arena_bytes", static_cast<int64_t>(method.arena_size)},
        {"peak_rss_bytes", static_cast<int64_t>(memory)},
        {"file_size_bytes", static_cast<int64_t>(file.size())},
        {"checksum", llm::checksum(file)},
        {"method", method.name},
        {"runs", runs},
        {"threads", static_cast<int64_t>(cpu.threads())},
        {"kernels", std::string(cpu.kernels())},
        {"emulated", false},
        {"samples", Json(JsonObject{{"latency_s", Json(JsonList(times.begin(), times.end()))}})},
        {"profile", Json()},
    }));
    return 0;
  }
  std::printf("median           %9.2f ms\n", usual * 1000);
  std::printf("mean             %9.2f ms\n", mean * 1000);
  std::printf("95th percentile  %9.2f ms\n", late * 1000);
  std::printf("calls            %9.1f a second, of %s\n", 1 / usual, shown(method.name).c_str());
  std::printf("peak memory      %12s  (arena %s, file %s)\n", megabytes(memory).c_str(),
              megabytes(method.arena_size).c_str(), megabytes(file.size()).c_str());
  std::printf("with             %d threads, %s kernels\n", cpu.threads(), cpu.kernels());
  return 0;
}

}  // namespace satchel::runner
