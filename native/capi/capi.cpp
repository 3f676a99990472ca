// satchel.h over native/llm. No exception leaves a function of this file.
#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "../llm/chat.h"
#include "../llm/errors.h"
#include "../llm/generation.h"
#include "../llm/verify.h"
#include "given.h"
#include "handles.h"
#include "satchel.h"
#include "status.h"

using namespace satchel;
using namespace satchel::capi;
using namespace satchel::llm;

namespace {

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

auto find_model(const satchel_model* handle) {
  return handles<ModelObject>().find(handle, "model");
}
auto find_session(const satchel_session* handle) {
  return handles<SessionObject>().find(handle, "session");
}
auto find_generation(const satchel_generation* handle) {
  return handles<GenerationObject>().find(handle, "generation");
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

// A text of a session: `prompt_of` makes its prompt, and may change the options.
template <typename PromptOf>
satchel_status begin(const satchel_session* handle, const char* text, size_t length,
                     const satchel_generation_options* options, bool chats,
                     satchel_generation** place, const PromptOf& prompt_of) {
  return guarded([&] {
    require(place != nullptr, "the place for the generation");
    *place = nullptr;
    const auto session = find_session(handle);
    const std::string_view given = text_of(text, length);
    const std::lock_guard<std::mutex> lock(session->mutex);
    GenerationOptions chosen = options_of(options, session->session->model(), chats);
    auto made = std::make_shared<GenerationObject>();
    made->owner = session;
    made->in_conversation = chats;
    Tokens prompt = prompt_of(*session, given, chosen);
    try {
      made->generation = std::make_unique<Generation>(*session->session, std::move(prompt), chosen);
    } catch (...) {
      if (chats) session->conversation->retract();
      throw;
    }
    made->number = ++session->generations;
    *place = static_cast<satchel_generation*>(handles<GenerationObject>().add(std::move(made)));
  });
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
    made->model = Model::open(path, static_cast<int>(options.threads), options.cache_memory,
                              options.target == nullptr ? Model::kCpu : options.target);
    if (options.verify != 0) verify(made->model->program().file());
    made->metadata = made->model->metadata().dump();
    *model = static_cast<satchel_model*>(handles<ModelObject>().add(std::move(made)));
  });
}

void satchel_model_close(satchel_model* model) { handles<ModelObject>().remove(model); }

satchel_status satchel_model_get_info(satchel_model* model, satchel_model_info* info) {
  return guarded([&] {
    const auto object = find_model(model);
    satchel_model_info known{};
    known.context = static_cast<uint32_t>(object->model->context());
    known.vocabulary = object->model->tokenizer().size();
    known.has_chat_template = has_chat_template(object->model->metadata()) ? 1 : 0;
    known.threads = static_cast<uint32_t>(object->model->engine().threads());
    known.file_size = object->model->program().file().size();
    give_part(known, info, "the information");
  });
}

satchel_status satchel_model_metadata(satchel_model* model, const char** json) {
  return guarded([&] {
    require(json != nullptr, "the place for the metadata");
    *json = find_model(model)->metadata.c_str();
  });
}

satchel_status satchel_tokenize(satchel_model* model, const char* text, size_t length,
                                uint32_t flags, uint32_t* tokens, size_t capacity, size_t* count) {
  return guarded([&] {
    require(count != nullptr, "the place for the count");
    require(tokens != nullptr || capacity == 0, "the place for the tokens");
    const auto object = find_model(model);
    const Tokenizer& tokenizer = object->model->tokenizer();
    const std::string_view given = text_of(text, length);
    const Tokens ids = (flags & SATCHEL_ADD_SURROUNDINGS) != 0
                           ? tokenizer.encode_prompt(given)
                           : tokenizer.encode(given, (flags & SATCHEL_PLAIN_TEXT) == 0);
    give_all(ids, tokens, capacity, count);
  });
}

satchel_status satchel_detokenize(satchel_model* model, const uint32_t* tokens, size_t count,
                                  uint32_t flags, char* text, size_t capacity, size_t* length) {
  return guarded([&] {
    require(length != nullptr, "the place for the length");
    require(tokens != nullptr || count == 0, "the list of tokens");
    require(text != nullptr || capacity == 0, "the place for the text");
    const auto object = find_model(model);
    const std::string found =
        object->model->tokenizer().decode({tokens, count}, (flags & SATCHEL_SHOW_SPECIAL) == 0);
    give_all(found, text, capacity, length);
  });
}

satchel_status satchel_session_open(satchel_model* model, const char* adapter,
                                    satchel_session** session) {
  return guarded([&] {
    require(session != nullptr, "the place for the session");
    *session = nullptr;
    const auto object = find_model(model);
    auto made = std::make_shared<SessionObject>();
    made->model = object->model;
    made->session = std::make_unique<Session>(object->model, adapter == nullptr ? "" : adapter);
    made->conversation = std::make_unique<Conversation>(*object->model);
    *session = static_cast<satchel_session*>(handles<SessionObject>().add(std::move(made)));
  });
}

void satchel_session_close(satchel_session* session) { handles<SessionObject>().remove(session); }

satchel_status satchel_session_add_message(satchel_session* session, const char* role,
                                           const char* content) {
  return guarded([&] {
    require(role != nullptr && content != nullptr, "the message");
    const auto object = find_session(session);
    const std::lock_guard<std::mutex> lock(object->mutex);
    object->conversation->add(role, content);
  });
}

satchel_status satchel_session_clear(satchel_session* session) {
  return guarded([&] {
    const auto object = find_session(session);
    const std::lock_guard<std::mutex> lock(object->mutex);
    object->conversation->clear();
    ++object->generations;
  });
}

satchel_status satchel_complete(satchel_session* session, const char* text, size_t length,
                                const satchel_generation_options* options,
                                satchel_generation** generation) {
  return begin(session, text, length, options, false, generation,
               [](SessionObject& object, std::string_view given, GenerationOptions&) {
                 if (given.empty()) throw ConfigError("the prompt is empty", "Give a text.");
                 return object.model->tokenizer().encode_prompt(given);
               });
}

satchel_status satchel_chat(satchel_session* session, const char* text, size_t length,
                            const satchel_generation_options* options,
                            satchel_generation** generation) {
  return begin(session, text, length, options, true, generation,
               [](SessionObject& object, std::string_view given, GenerationOptions& chosen) {
                 Conversation::Turn turn = object.conversation->send(std::string(given));
                 chosen.keep = turn.keep;
                 return std::move(turn.prompt);
               });
}

satchel_status satchel_next(satchel_generation* generation, const char** piece, size_t* length) {
  bool ended = false;
  const satchel_status status = guarded([&] {
    require(piece != nullptr && length != nullptr, "the place for the piece");
    *piece = "";
    *length = 0;
    const auto object = find_generation(generation);
    SessionObject& owner = *object->owner;
    const std::lock_guard<std::mutex> lock(owner.mutex);
    if (object->number != owner.generations)
      throw Misuse("the session has begun another text since");
    object->piece.clear();
    ended = !object->generation->next(object->piece);
    if (ended) return;
    if (object->in_conversation) owner.conversation->hear(object->piece);
    *piece = object->piece.c_str();
    *length = object->piece.size();
  });
  return ended ? SATCHEL_END : status;
}

satchel_status satchel_generation_get_stats(satchel_generation* generation,
                                            satchel_generation_stats* stats) {
  return guarded([&] {
    const auto object = find_generation(generation);
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
  });
}

void satchel_generation_close(satchel_generation* generation) {
  handles<GenerationObject>().remove(generation);
}

}  // extern "C"
