// bench.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "../llm/errors.h"
#include "../llm/random.h"
#include "../llm/session.h"
#include "../llm/verify.h"
#include "arguments.h"
#include "classify.h"
#include "commands.h"

namespace satchel::runner {

namespace {

using namespace satchel::llm;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Run {
  double ttft_s, decode_s;
};

uint32_t best(std::span<const float> logits) {
  return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// End tokens are ignored, so that every run does the same work.
Run measure(Session& session, const Tokens& prompt, int64_t new_tokens) {
  session.rewind(0);
  const Clock::time_point start = Clock::now();
  uint32_t token = best(session.feed(prompt));
  const double first = since(start);
  for (int64_t i = 1; i < new_tokens; ++i) token = best(session.feed(std::span(&token, 1)));
  return {first, since(start) - first};
}

// The same prompt, one token at a time.
double measure_without_prefill(Session& session, const Tokens& prompt) {
  session.rewind(0);
  const Clock::time_point start = Clock::now();
  for (const uint32_t& token : prompt) session.feed(std::span(&token, 1));
  return since(start);
}

// Weights, and the part of the caches that a token in the middle of the answer reads.
uint64_t bytes_per_token(const Model& model, int64_t prompt_tokens, int64_t new_tokens) {
  const Program& program = model.program();
  uint64_t caches = 0;
  for (const StateInfo& state : program.states()) caches += state.bytes;
  const auto filled = static_cast<uint64_t>(prompt_tokens + new_tokens / 2);
  return program.weight_bytes_read(program.methods()[model.adapted("kv_forward", "")]) +
         caches * filled / static_cast<uint64_t>(model.context());
}

Json list_of(const std::vector<double>& values) {
  return Json(JsonList(values.begin(), values.end()));
}

Json spread(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return Json(JsonList{*low, *high});
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

uint64_t peak_memory() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return static_cast<uint64_t>(usage.ru_maxrss);
#else
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

int bench(int argc, char** argv) {
  const Arguments given(argc, argv,
                        {"prompt-tokens=", "new-tokens=", "warmup=", "runs=", "cool-down=",
                         "threads=", "target=", "json"});
  if (given.places().size() != 1) throw UsageError("bench takes one program");
  if (is_classifier(given.places()[0])) return bench_module(given);
  const int64_t prompt_tokens = given.whole("prompt-tokens", 1).value_or(256);
  const int64_t new_tokens = given.whole("new-tokens", 1).value_or(64);
  const int64_t warmup = given.whole("warmup", 0).value_or(1);
  const int64_t runs = given.whole("runs", 1).value_or(3);
  const std::chrono::duration<double> rest(given.number("cool-down").value_or(0));

  const Clock::time_point start = Clock::now();
  const auto model = open_model(given, given.places()[0]);
  Session session(model);
  const uint32_t zero = 0;
  const size_t vocabulary = session.feed(std::span(&zero, 1)).size();
  const double load = since(start);
  if (prompt_tokens + new_tokens > model->context()) {
    throw ConfigError(std::to_string(prompt_tokens) + " prompt and " + std::to_string(new_tokens) +
                          " new tokens are more than the context of " +
                          std::to_string(model->context()),
                      "Use fewer, or export with a larger --context.");
  }
  Random random(std::span(&zero, 1));
  Tokens prompt;
  for (int64_t i = 0; i < prompt_tokens; ++i)
    prompt.push_back(static_cast<uint32_t>(random.next() * static_cast<double>(vocabulary)));
  for (int64_t i = 0; i < warmup; ++i) measure(session, prompt, new_tokens);
  std::vector<double> prefill, decode, ttft;
  for (int64_t i = 0; i < runs; ++i) {
    if (i + warmup > 0) std::this_thread::sleep_for(rest);
    say("run " + std::to_string(i + 1) + " of " + std::to_string(runs));
    const Run one = measure(session, prompt, new_tokens);
    ttft.push_back(one.ttft_s);
    prefill.push_back(static_cast<double>(prompt_tokens) / one.ttft_s);
    decode.push_back(new_tokens > 1 ? static_cast<double>(new_tokens - 1) / one.decode_s : 0.0);
  }
  const uint64_t memory = peak_memory();  // before the bandwidth's own buffer
  const Engine& engine = model->engine();
  const ProgramFile& file = model->program().file();
  const std::string mode = model->find_method("prefill_forward") ? "hybrid" : "kv";
  const double kv = mode == "hybrid" ? measure_without_prefill(session, prompt) : median(ttft);
  const uint64_t on_device = engine.device_memory();
  const double bandwidth = engine.measure_read_bandwidth();
  const uint64_t read = bytes_per_token(*model, prompt_tokens, new_tokens);
  const double share = median(decode) * static_cast<double>(read) / bandwidth;
  if (given.has("json")) {
    print_json(Json(JsonObject{
        {"program", given.places()[0]},
        {"checksum", checksum(file)},
        {"mode", mode},
        {"prompt_tokens", prompt_tokens},
        {"new_tokens", new_tokens},
        {"runs", runs},
        {"threads", static_cast<int64_t>(engine.threads())},
        {"kernels", engine.kernels()},
        {"emulated", engine.is_emulated()},
        {"prefill_tok_s", median(prefill)},
        {"prefill_tok_s_spread", spread(prefill)},
        {"decode_tok_s", median(decode)},
        {"decode_tok_s_spread", spread(decode)},
        {"ttft_s", median(ttft)},
        {"ttft_kv_s", kv},
        {"load_s", load},
        {"bytes_per_token", static_cast<int64_t>(read)},
        {"read_bandwidth_bytes_s", bandwidth},
        {"bandwidth_share", share},
        {"multiply_adds_s", Json()},
        {"arithmetic_share", Json()},
        {"peak_rss_bytes", static_cast<int64_t>(memory)},
        {"device_memory_bytes", on_device > 0 ? Json(static_cast<int64_t>(on_device)) : Json()},
        {"file_size_bytes", static_cast<int64_t>(file.size())},
        {"samples", Json(JsonObject{{"prefill_tok_s", list_of(prefill)},
                                    {"decode_tok_s", list_of(decode)},
                                    {"ttft_s", list_of(ttft)}})},
        {"lookahead", Json()},
        {"profile", Json()},
    }));
    return 0;
  }
  std::printf("prefill              %9.1f tok/s\n", median(prefill));
  std::printf("decode               %9.1f tok/s\n", median(decode));
  std::printf("time to first token  %9.3f s      %s, %lld prompt tokens\n", median(ttft),
              mode.c_str(), static_cast<long long>(prompt_tokens));
  if (mode == "hybrid")
    std::printf("                     %9.3f s      kv, %.1f times as long\n", kv,
                kv / median(ttft));
  std::printf("load to first token  %9.3f s      of a prompt of one token\n", load);
  std::printf("read per token       %12s\n", megabytes(read).c_str());
  std::printf("memory bandwidth     %8.0f%%        of %.1f GB/s, measured in this run\n",
              share * 100, bandwidth / 1e9);
  std::printf("peak memory          %12s  (file %s)\n", megabytes(memory).c_str(),
              megabytes(file.size()).c_str());
  if (on_device > 0) std::printf("memory of the device %12s\n", megabytes(on_device).c_str());
  std::printf("with                 %d threads, %s kernels\n", engine.threads(),
              engine.kernels().c_str());
  return 0;
}

}  // namespace satchel::runner
