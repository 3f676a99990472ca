// satchel.h over native/llm. No exception leaves a function of this file.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "../llm/chat.h"
#include "../llm/errors.h"
#include "../llm/generation.h"
#include "../llm/verify.h"
#include "satchel.h"

using namespace satchel;
using namespace satchel::llm;

namespace {

struct LastError {
  satchel_status code = SATCHEL_OK;
  std::string message, advice;
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

satchel_status failed(satchel_status code, const char* message, const std::string& advice) {
  LastError& error = last_error();
  error.code = code;
  try {
    error.message = message;
    error.advice = advice;
  } catch (...) {  // no memory for the message
    error.message.clear();
    error.advice.clear();
  }
  return code;
}

class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename Work>
satchel_status guarded(const Work& work) noexcept {
  try {
    return work();
  } catch (const Misuse& e) {
    return failed(SATCHEL_MISUSE, e.what(), "Check the order of the calls.");
  } catch (const ChecksumError& e) {
    return failed(SATCHEL_WRONG_CHECKSUM, e.what(), e.advice);
  } catch (const FormatError& e) {
    return failed(SATCHEL_INVALID_FILE, e.what(), e.advice);
  } catch (const ContextFullError& e) {
    return failed(SATCHEL_CONTEXT_FULL, e.what(), e.advice);
  } catch (const TemplateError& e) {
    return failed(SATCHEL_TEMPLATE, e.what(), e.advice);
  } catch (const TokenizerError& e) {
    return failed(SATCHEL_TOKENIZER, e.what(), e.advice);
  } catch (const AdvisedError& e) {
    return failed(SATCHEL_IMPOSSIBLE, e.what(), e.advice);
  } catch (const CacheFullError& e) {
    return failed(SATCHEL_CACHE_FULL, e.what(), "Close sessions that are not needed.");
  } catch (const ExecutionError& e) {
    return failed(SATCHEL_EXECUTION, e.what(), "Check the program with satchel-run verify.");
  } catch (const std::bad_alloc&) {
    return failed(SATCHEL_OUT_OF_MEMORY, "there is not enough memory", "Use a smaller model.");
  } catch (const std::exception& e) {
    return failed(SATCHEL_INTERNAL, e.what(), "Please report this.");
  } catch (...) {
    return failed(SATCHEL_INTERNAL, "an unknown error", "Please report this.");
  }
}

// The objects behind handles. A handle is a number that is never used again, so
// that one that was closed is known to be so; an object lives on until the
// calls that use it are done.
template <typename T>
class Handles {
 public:
  void* add(std::shared_ptr<T> object) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uintptr_t number = next_number();
    objects_.emplace(number, std::move(object));
    return reinterpret_cast<void*>(number);
  }
  std::shared_ptr<T> find(const void* handle, const char* kind) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == objects_.end()) throw Misuse(std::string("this is not (or no longer) a ") + kind);
    return found->second;
  }
  void remove(const void* handle) noexcept {
    std::shared_ptr<T> object;  // ends outside of the lock
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
      if (found == objects_.end()) return;
      object = std::move(found->second);
      objects_.erase(found);
    } catch (...) {  // a mutex that cannot be locked: nothing to be done
    }
  }

 private:
  static uintptr_t next_number() {
    static std::atomic<uintptr_t> last{0};
    return last += 16;  // shared by all kinds, so that none is taken for another
  }

  std::mutex mutex_;
  std::map<uintptr_t, std::shared_ptr<T>> objects_;
};

struct ModelObject {
  std::shared_ptr<Model> model;
  std::string metadata;
};

struct SessionObject {
  std::mutex mutex;
  std::shared_ptr<Model> model;
  std::unique_ptr<Session> session;
  std::unique_ptr<Conversation> conversation;
  uint64_t generations = 0;
};

struct GenerationObject {
  std::shared_ptr<SessionObject> owner;
  std::unique_ptr<Generation> generation;
  uint64_t number = 0;
  bool in_conversation = false;
  std::string piece;
};

// Never destroyed: other threads may still call while a process ends.
Handles<ModelObject>& models() {
  static auto* handles = new Handles<ModelObject>;
  return *handles;
}
Handles<SessionObject>& sessions() {
  static auto* handles = new Handles<SessionObject>;
  return *handles;
}
Handles<GenerationObject>& generations() {
  static auto* handles = new Handles<GenerationObject>;
  return *handles;
}

void require(bool good, const char* what) {
  if (!good) throw Misuse(std::string(what) + " is null");
}

std::string_view text_of(const char* text, size_t length) {
  require(text != nullptr || length == 0, "the text");
  return {text == nullptr ? "" : text, length};
}

// A struct of a caller that may be older or newer: what is missing is zero.
template <typename T>
T known_part(const T* given, const char* what) {
  T known{};
  if (given == nullptr) return known;
  if (given->size < sizeof(size_t) || given->size > 1 << 16)
    throw Misuse(std::string("the size of ") + what + " is not set");
  std::memcpy(&known, given, std::min(given->size, sizeof known));
  return known;
}

template <typename T>
void give_part(T known, T* to, const char* what) {
  require(to != nullptr, what);
  const size_t size = to->size;
  if (size < sizeof(size_t) || size > 1 << 16)
    throw Misuse(std::string("the size of ") + what + " is not set");
  known.size = size;
  std::memcpy(to, &known, std::min(size, sizeof known));
}

GenerationOptions options_of(const satchel_generation_options* from, const Model& model,
                             bool chats) {
  const satchel_generation_options given = known_part(from, "the options");
  GenerationOptions options;
  options.sampling = model.usual_sampling(chats);
  SamplingOptions& sampling = options.sampling;
  const auto has = [&](uint32_t bit) { return (given.given & bit) != 0; };
  if (has(SATCHEL_GIVEN_TEMPERATURE)) sampling.temperature = given.temperature;
  if (has(SATCHEL_GIVEN_TOP_K)) sampling.top_k = given.top_k;
  if (has(SATCHEL_GIVEN_TOP_P)) sampling.top_p = given.top_p;
  if (has(SATCHEL_GIVEN_MIN_P)) sampling.min_p = given.min_p;
  if (has(SATCHEL_GIVEN_REPETITION_PENALTY)) sampling.repetition_penalty = given.repetition_penalty;
  sampling.frequency_penalty = given.frequency_penalty;
  sampling.presence_penalty = given.presence_penalty;
  if (has(SATCHEL_GIVEN_SEED)) options.seed = given.seed;
  options.max_new_tokens = given.max_new_tokens;
  options.slides = given.slide != 0;
  require(given.stop != nullptr || given.stop_count == 0, "the list of stop texts");
  for (size_t i = 0; i < given.stop_count; ++i) {
    require(given.stop[i] != nullptr, "a stop text");
    options.stop.emplace_back(given.stop[i]);
  }
  return options;
}

satchel_status begin(const std::shared_ptr<SessionObject>& session, Tokens prompt,
                     GenerationOptions options, bool in_conversation,
                     satchel_generation** generation) {
  auto made = std::make_shared<GenerationObject>();
  made->owner = session;
  made->generation =
      std::make_unique<Generation>(*session->session, std::move(prompt), std::move(options));
  made->number = ++session->generations;
  made->in_conversation = in_conversation;
  *generation = static_cast<satchel_generation*>(generations().add(std::move(made)));
  return SATCHEL_OK;
}

}  // namespace

extern "C" {

uint32_t satchel_api_version(void) { return SATCHEL_API_VERSION; }
const char* satchel_version(void) { return SATCHEL_VERSION; }

satchel_status satchel_error_code(void) { return last_error().code; }
const char* satchel_error_message(void) { return last_error().message.c_str(); }
const char* satchel_error_advice(void) { return last_error().advice.c_str(); }

satchel_status satchel_model_open(const char* path, const satchel_model_options* from,
                                  satchel_model** model) {
  return guarded([&] {
    require(path != nullptr, "the path");
    require(model != nullptr, "the place for the model");
    *model = nullptr;
    const satchel_model_options options = known_part(from, "the options");
    if (options.threads > 1024) throw ConfigError("there are at most 1024 threads");
    auto made = std::make_shared<ModelObject>();
    made->model = Model::open(path, static_cast<int>(options.threads), options.cache_memory);
    if (options.verify != 0) verify(made->model->program().file());
    made->metadata = made->model->metadata().dump();
    *model = static_cast<satchel_model*>(models().add(std::move(made)));
    return SATCHEL_OK;
  });
}

void satchel_model_close(satchel_model* model) { models().remove(model); }

satchel_status satchel_model_get_info(satchel_model* model, satchel_model_info* info) {
  return guarded([&] {
    const auto object = models().find(model, "model");
    satchel_model_info known{};
    known.context = static_cast<uint32_t>(object->model->context());
    known.vocabulary = object->model->tokenizer().size();
    known.has_chat_template = has_chat_template(object->model->metadata()) ? 1 : 0;
    known.threads = static_cast<uint32_t>(object->model->instance().cpu().threads());
    known.file_size = object->model->program().file().size();
    give_part(known, info, "the information");
    return SATCHEL_OK;
  });
}

satchel_status satchel_model_metadata(satchel_model* model, const char** json) {
  return guarded([&] {
    require(json != nullptr, "the place for the metadata");
    *json = models().find(model, "model")->metadata.c_str();
    return SATCHEL_OK;
  });
}

satchel_status satchel_tokenize(satchel_model* model, const char* text, size_t length,
                                uint32_t flags, uint32_t* tokens, size_t capacity, size_t* count) {
  return guarded([&] {
    require(count != nullptr, "the place for the count");
    require(tokens != nullptr || capacity == 0, "the place for the tokens");
    const auto object = models().find(model, "model");
    const Tokenizer& tokenizer = object->model->tokenizer();
    const std::string_view given = text_of(text, length);
    const Tokens ids = (flags & SATCHEL_ADD_SURROUNDINGS) != 0
                           ? tokenizer.encode_prompt(given)
                           : tokenizer.encode(given, (flags & SATCHEL_PLAIN_TEXT) == 0);
    std::copy_n(ids.begin(), std::min(capacity, ids.size()), tokens);
    *count = ids.size();
    return SATCHEL_OK;
  });
}

satchel_status satchel_detokenize(satchel_model* model, const uint32_t* tokens, size_t count,
                                  uint32_t flags, char* text, size_t capacity, size_t* length) {
  return guarded([&] {
    require(length != nullptr, "the place for the length");
    require(tokens != nullptr || count == 0, "the list of tokens");
    require(text != nullptr || capacity == 0, "the place for the text");
    const auto object = models().find(model, "model");
    const std::string found =
        object->model->tokenizer().decode({tokens, count}, (flags & SATCHEL_SHOW_SPECIAL) == 0);
    std::copy_n(found.begin(), std::min(capacity, found.size()), text);
    *length = found.size();
    return SATCHEL_OK;
  });
}

satchel_status satchel_session_open(satchel_model* model, const char* adapter,
                                    satchel_session** session) {
  return guarded([&] {
    require(session != nullptr, "the place for the session");
    *session = nullptr;
    const auto object = models().find(model, "model");
    auto made = std::make_shared<SessionObject>();
    made->model = object->model;
    made->session = std::make_unique<Session>(object->model, adapter == nullptr ? "" : adapter);
    made->conversation = std::make_unique<Conversation>(*object->model);
    *session = static_cast<satchel_session*>(sessions().add(std::move(made)));
    return SATCHEL_OK;
  });
}

void satchel_session_close(satchel_session* session) { sessions().remove(session); }

satchel_status satchel_session_add_message(satchel_session* session, const char* role,
                                           const char* content) {
  return guarded([&] {
    require(role != nullptr && content != nullptr, "the message");
    const auto object = sessions().find(session, "session");
    const std::lock_guard<std::mutex> lock(object->mutex);
    object->conversation->add(role, content);
    return SATCHEL_OK;
  });
}

satchel_status satchel_session_clear(satchel_session* session) {
  return guarded([&] {
    const auto object = sessions().find(session, "session");
    const std::lock_guard<std::mutex> lock(object->mutex);
    object->conversation->clear();
    ++object->generations;
    return SATCHEL_OK;
  });
}

satchel_status satchel_complete(satchel_session* session, const char* text, size_t length,
                                const satchel_generation_options* options,
                                satchel_generation** generation) {
  return guarded([&] {
    require(generation != nullptr, "the place for the generation");
    *generation = nullptr;
    const auto object = sessions().find(session, "session");
    const std::string_view given = text_of(text, length);
    const std::lock_guard<std::mutex> lock(object->mutex);
    const Model& model = object->session->model();
    if (given.empty()) throw ConfigError("the prompt is empty", "Give a text.");
    return begin(object, model.tokenizer().encode_prompt(given), options_of(options, model, false),
                 false, generation);
  });
}

satchel_status satchel_chat(satchel_session* session, const char* text, size_t length,
                            const satchel_generation_options* options,
                            satchel_generation** generation) {
  return guarded([&] {
    require(generation != nullptr, "the place for the generation");
    *generation = nullptr;
    const auto object = sessions().find(session, "session");
    const std::string_view given = text_of(text, length);
    const std::lock_guard<std::mutex> lock(object->mutex);
    GenerationOptions chosen = options_of(options, object->session->model(), true);
    Conversation::Turn turn = object->conversation->send(std::string(given));
    chosen.keep = turn.keep;
    try {
      return begin(object, std::move(turn.prompt), std::move(chosen), true, generation);
    } catch (...) {
      object->conversation->retract();
      throw;
    }
  });
}

satchel_status satchel_next(satchel_generation* generation, const char** piece, size_t* length) {
  return guarded([&] {
    require(piece != nullptr && length != nullptr, "the place for the piece");
    *piece = "";
    *length = 0;
    const auto object = generations().find(generation, "generation");
    SessionObject& owner = *object->owner;
    const std::lock_guard<std::mutex> lock(owner.mutex);
    if (object->number != owner.generations)
      throw Misuse("the session has begun another text since");
    object->piece.clear();
    if (!object->generation->next(object->piece)) return SATCHEL_END;
    if (object->in_conversation) owner.conversation->hear(object->piece);
    *piece = object->piece.c_str();
    *length = object->piece.size();
    return SATCHEL_OK;
  });
}

satchel_status satchel_generation_get_stats(satchel_generation* generation,
                                            satchel_generation_stats* stats) {
  return guarded([&] {
    const auto object = generations().find(generation, "generation");
    const std::lock_guard<std::mutex> lock(object->owner->mutex);
    const GenerationStats& found = object->generation->stats();
    satchel_generation_stats known{};
    known.prompt_tokens = static_cast<uint32_t>(found.prompt_tokens);
    known.reused_tokens = static_cast<uint32_t>(found.reused_tokens);
    known.new_tokens = static_cast<uint32_t>(found.new_tokens);
    known.slides = static_cast<uint32_t>(found.slides);
    known.prefill_s = found.prefill_s;
    known.decode_s = found.decode_s;
    known.ttft_s = found.ttft_s;
    known.stop_reason = stop_reason_name(object->generation->stop_reason());
    give_part(known, stats, "the statistics");
    return SATCHEL_OK;
  });
}

void satchel_generation_close(satchel_generation* generation) { generations().remove(generation); }

}  // extern "C"
