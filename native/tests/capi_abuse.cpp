// Calls the C API from several threads in any order, with handles that are closed, of another kind
// or made up, on files that are whole, damaged or hostile. Beside them, programs that hear write
// down the WAV files among them, for which the C API has no calls. Built with sanitizers, the first
// thing that goes wrong ends it:
//   capi_abuse SECONDS SEED FILE…
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../capi/satchel.h"
#include "../speech/transcriber.h"

namespace {

constexpr int kThreads = 3;
constexpr size_t kMostHandles = 12;

// Handles that any thread may use, or close while another uses them.
class Shelf {
 public:
  void put(void* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (handles_.size() < kMostHandles) {
      handles_.push_back(handle);
    } else {
      handles_[handles_.size() - 1] = handle;  // the one before is lost on purpose
    }
  }
  void* any(std::mt19937_64& random) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (handles_.empty() || random() % 16 == 0) return reinterpret_cast<void*>(random() % 4096);
    return handles_[random() % handles_.size()];
  }

 private:
  std::mutex mutex_;
  std::vector<void*> handles_;
};

Shelf models, sessions, generations, classifiers;
std::atomic<uint64_t> calls{0}, refused{0}, opened{0}, pieces{0}, classified{0}, heard{0};
std::vector<std::string> programs, sounds;

const char* const kTexts[] = {"Hello", "", "<|user|> \xf0\x9f\x98\x80", "\xff\xfe", "the the the"};

void count(satchel_status status) {
  ++calls;
  if (status == SATCHEL_OK || status == SATCHEL_END) return;
  ++refused;
  if (std::strlen(satchel_error_message()) == 0 || satchel_error_code() != status) {
    std::fprintf(stderr, "status %d without a reason\n", static_cast<int>(status));
    std::abort();
  }
  if (status == SATCHEL_INTERNAL) {
    std::fprintf(stderr, "internal: %s\n", satchel_error_message());
    std::abort();
  }
}

template <typename T>
T* handle_of(std::mt19937_64& random, Shelf& usual) {
  Shelf* shelves[] = {&usual,  &usual,    &usual,       &usual,
                      &models, &sessions, &generations, &classifiers};
  return static_cast<T*>(shelves[random() % 8]->any(random));
}

void open_model(std::mt19937_64& random) {
  satchel_model_options options{};
  options.size = random() % 8 == 0 ? random() % 64 : sizeof options;
  options.threads = static_cast<uint32_t>(random() % 3);
  options.cache_memory = random() % 2 == 0 ? 0 : 1 << 20;
  options.verify = random() % 4 == 0;
  satchel_model* model = nullptr;
  const bool plain = random() % 2 == 0;
  const satchel_status status = satchel_model_open(programs[random() % programs.size()].c_str(),
                                                   plain ? nullptr : &options, &model);
  count(status);
  if (status == SATCHEL_OK) {
    ++opened;
    models.put(model);
  }
}

void put_classifier(const std::string& file) {
  satchel_classifier* classifier = nullptr;
  const satchel_status status = satchel_classifier_open(file.c_str(), nullptr, &classifier);
  count(status);
  if (status == SATCHEL_OK) ++opened, classifiers.put(classifier);
}

// Pixels, and bytes that begin as a picture does.
void classify(std::mt19937_64& random) {
  auto* classifier = handle_of<satchel_classifier>(random, classifiers);
  std::vector<uint8_t> bytes(3 * 20 * 20);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  std::vector<satchel_class> found(random() % 6);
  size_t many = 0;
  const auto width = static_cast<uint32_t>(random() % 21), height = uint32_t{20};
  const satchel_status status = satchel_classify_pixels(classifier, bytes.data(), width, height,
                                                        found.data(), found.size(), &many);
  count(status);
  if (status == SATCHEL_OK) ++classified;
  for (size_t i = 0; i < many; ++i) {  // not read: another thread may have closed the classifier
    if (found[i].label == nullptr) std::abort();
  }
  const uint8_t jpeg[] = {0xFF, 0xD8, 0xFF, static_cast<uint8_t>(0xC0 + random() % 48)};
  std::copy(std::begin(jpeg), std::end(jpeg), bytes.begin());
  count(satchel_classify(classifier, bytes.data(), random() % bytes.size(), found.data(),
                         found.size(), &many));
}

// Two recordings, by any program: most hear nothing.
void transcribe(std::mt19937_64& random) {
  ++calls;
  try {
    satchel::speech::Transcriber transcriber(programs[random() % programs.size()], 1);
    for (int i = 0; i < 2 && !sounds.empty(); ++i) {
      const auto language = random() % 2 == 0 ? std::optional<std::string>("de") : std::nullopt;
      transcriber.transcribe(sounds[random() % sounds.size()], language, random() % 2 == 0,
                             [](const satchel::speech::Segment&) {});
      ++heard;
    }
  } catch (const std::exception& error) {
    ++refused;
    if (std::strlen(error.what()) == 0) std::abort();
  }
}

void begin_text(std::mt19937_64& random) {
  satchel_generation_options options{};
  options.size = sizeof options;
  options.max_new_tokens = static_cast<uint32_t>(random() % 6);
  options.given = static_cast<uint32_t>(random() % 64);
  options.temperature = static_cast<double>(random() % 5) - 1;
  options.top_k = static_cast<uint32_t>(random() % 9);
  options.top_p = static_cast<double>(random() % 5) / 4;
  options.min_p = static_cast<double>(random() % 5) / 4;
  options.repetition_penalty = static_cast<double>(random() % 3);
  options.seed = random();
  const char* const stops[] = {"a", "the"};
  options.stop = stops;
  options.stop_count = random() % 3;
  options.slide = random() % 2;
  const char* text = kTexts[random() % 5];
  satchel_generation* made = nullptr;
  const auto begin = random() % 2 == 0 ? satchel_chat : satchel_complete;
  const satchel_status status =
      begin(handle_of<satchel_session>(random, sessions), text, std::strlen(text),
            random() % 3 == 0 ? nullptr : &options, &made);
  count(status);
  if (status == SATCHEL_OK) generations.put(made);
}

void read_text(std::mt19937_64& random) {
  auto* generation = handle_of<satchel_generation>(random, generations);
  const char* piece = nullptr;
  size_t length = 0;
  for (uint64_t i = random() % 5; i-- > 0;) {
    const satchel_status status = satchel_next(generation, &piece, &length);
    count(status);
    if (status != SATCHEL_OK) return;
    ++pieces;
  }
  satchel_generation_stats stats{};
  stats.size = random() % 4 == 0 ? random() % 80 : sizeof stats;
  count(satchel_generation_get_stats(generation, &stats));
}

void tokenize(std::mt19937_64& random) {
  auto* model = handle_of<satchel_model>(random, models);
  const char* text = kTexts[random() % 5];
  std::vector<uint32_t> tokens(random() % 20);
  size_t found = 0;
  count(satchel_tokenize(model, text, std::strlen(text), static_cast<uint32_t>(random() % 8),
                         tokens.data(), tokens.size(), &found));
  for (uint32_t& token : tokens)
    token = static_cast<uint32_t>(random() % 3 == 0 ? random() : token);
  std::string back(random() % 30, 'x');
  count(satchel_detokenize(model, tokens.data(), tokens.size(), static_cast<uint32_t>(random() % 8),
                           back.data(), back.size(), &found));
}

void one_call(std::mt19937_64& random) {
  switch (random() % 20) {
    case 0:
      return open_model(random);
    case 1: {
      satchel_session* session = nullptr;
      const char* adapter = random() % 8 == 0 ? "fr" : nullptr;
      const auto status =
          satchel_session_open(handle_of<satchel_model>(random, models), adapter, &session);
      count(status);
      if (status == SATCHEL_OK) sessions.put(session);
      return;
    }
    case 2:
      return count(satchel_session_add_message(handle_of<satchel_session>(random, sessions),
                                               random() % 2 == 0 ? "system" : "?", "Be brief."));
    case 3:
      return count(satchel_session_clear(handle_of<satchel_session>(random, sessions)));
    case 4:
      if (random() % 4 == 0) satchel_model_close(handle_of<satchel_model>(random, models));
      return;
    case 5:
      if (random() % 2 == 0) satchel_session_close(handle_of<satchel_session>(random, sessions));
      return;
    case 6:
      return satchel_generation_close(handle_of<satchel_generation>(random, generations));
    case 7: {
      satchel_model_info info{};
      info.size = random() % 4 == 0 ? random() % 64 : sizeof info;
      return count(satchel_model_get_info(handle_of<satchel_model>(random, models), &info));
    }
    case 8:
      count(satchel_model_open(nullptr, nullptr, nullptr));
      count(satchel_next(nullptr, nullptr, nullptr));
      return count(satchel_chat(nullptr, nullptr, 5, nullptr, nullptr));
    case 9:
      return tokenize(random);
    case 10:
    case 11:
      return begin_text(random);
    case 12:
      if (random() % 4 == 0)
        satchel_classifier_close(handle_of<satchel_classifier>(random, classifiers));
      else
        put_classifier(programs[random() % programs.size()]);
      return;
    case 13:
      return classify(random);
    case 14:
      if (random() % 8 == 0) transcribe(random);
      return;
    default:
      return read_text(random);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "capi_abuse SECONDS SEED FILE…\n");
    return 2;
  }
  for (int i = 3; i < argc; ++i) {
    const std::string file = argv[i];
    (file.ends_with(".wav") ? sounds : programs).push_back(file);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  std::mt19937_64 first(std::strtoull(argv[2], nullptr, 10));
  // Every file is opened at least once, whatever chance says.
  for (const std::string& file : programs) {
    satchel_model* model = nullptr;
    const satchel_status status = satchel_model_open(file.c_str(), nullptr, &model);
    count(status);
    if (status == SATCHEL_OK) ++opened, models.put(model);
    put_classifier(file);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, seed = first()] {
      std::mt19937_64 random(seed);
      while (std::chrono::steady_clock::now() < end) one_call(random);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf(
      "%llu calls, %llu refused, %llu files opened, %llu pieces of text, %llu pictures, "
      "%llu recordings\n",
      number(calls), number(refused), number(opened), number(pieces), number(classified),
      number(heard));
  return pieces > 0 && classified > 0 ? 0 : 1;
}
