// run and chat.
#include <csignal>
#include <cstdio>
#include <memory>

#include "../llm/chat.h"
#include "../llm/errors.h"
#include "../llm/generation.h"
#include "../llm/verify.h"
#include "arguments.h"
#include "classify.h"
#include "commands.h"
#include "shown_pictures.h"

namespace satchel::runner {

namespace {

using namespace satchel::llm;

const std::vector<std::string> kFlags = {
    "prompt=",  "prompt-file=",    "image=",           "raw",
    "system=",  "max-new-tokens=", "seq-len=",         "temperature=",
    "top-k=",   "top-p=",          "min-p=",           "repetition-penalty=",
    "seed=",    "stop=",           "on-context-full=", "thinking=",
    "adapter=", "threads=",        "target=",          "verify",
    "json",     "lookahead=",      "input=",           "top=",
    "warmup=",  "iterations=",     "cool-down="};

constexpr std::string_view kShow = "/image ";  // in a conversation, before a file's name

bool read_line(std::string& line) {
  line.clear();
  int c;
  while ((c = std::fgetc(stdin)) != EOF && c != '\n') line.push_back(static_cast<char>(c));
  if (line.ends_with('\r')) line.pop_back();
  return c != EOF || !line.empty();
}

// A prompt of a file, whose lines may end as they do on Windows.
std::string read_prompt(const std::string& path) {
  const std::string text = read_file(path);
  std::string prompt;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      prompt += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      prompt += '\n';
    }
  }
  return prompt;
}

// Within its life, an interrupt (Ctrl-C) is remembered and does not end the process; a second one
// does: what is computed (a long prompt) may take its time to notice the first.
class Interrupt {
 public:
  Interrupt() : before_(std::signal(SIGINT, remember)) { came_ = 0; }
  ~Interrupt() { std::signal(SIGINT, before_); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool came() const { return came_ != 0; }

 private:
  static void remember(int) {
    came_ = 1;
    std::signal(SIGINT, SIG_DFL);
  }

  static inline volatile std::sig_atomic_t came_ = 0;
  void (*before_)(int);
};

std::shared_ptr<Model> open_checked(const Arguments& given) {
  if (given.places().empty()) throw UsageError("a program is missing");
  auto model = open_model(given, given.places()[0]);
  if (given.has("verify")) llm::verify(model->program().file());
  return model;
}

// What was given instead of what is usual.
SamplingOptions changed(SamplingOptions sampling, const Arguments& given) {
  sampling.temperature = given.number("temperature").value_or(sampling.temperature);
  if (const auto k = given.whole("top-k", 0, UINT32_MAX))
    sampling.top_k = static_cast<uint32_t>(*k);
  sampling.top_p = given.number("top-p").value_or(sampling.top_p);
  sampling.min_p = given.number("min-p").value_or(sampling.min_p);
  sampling.repetition_penalty =
      given.number("repetition-penalty").value_or(sampling.repetition_penalty);
  return sampling;
}

// A value that no model could take is wrong usage, and told before one is opened.
void check_usage(const Arguments& given) {
  try {
    changed(SamplingOptions{}, given).check();
  } catch (const ConfigError& error) {
    throw UsageError(error.what() + (error.advice.empty() ? "" : ". " + error.advice));
  }
}

GenerationOptions options_of(const Arguments& given, const Model& model, bool chats) {
  GenerationOptions options;
  options.sampling = changed(model.usual_sampling(chats), given);
  options.sampling.check();
  if (const auto seed = given.whole("seed", 0)) options.seed = static_cast<uint64_t>(*seed);
  options.max_new_tokens = given.whole("max-new-tokens", 1).value_or(0);
  options.stop = given.texts("stop");
  const std::string policy = given.text("on-context-full").value_or(chats ? "slide" : "stop");
  if (policy != "stop" && policy != "slide") throw UsageError("--on-context-full is stop or slide");
  options.slides = policy == "slide";
  if (const auto mode = given.text("lookahead")) {
    if (*mode != "auto" && *mode != "on" && *mode != "off")
      throw UsageError("--lookahead is auto, on or off");
    options.lookahead = *mode == "on"    ? LookaheadMode::on
                        : *mode == "off" ? LookaheadMode::off
                                         : LookaheadMode::automatic;
  }
  return options;
}

// --seq-len counts prompt and answer together.
void limit(const Arguments& given, const Tokens& prompt, GenerationOptions& options) {
  const auto length = given.whole("seq-len", 1);
  if (!length) return;
  const int64_t room = *length - static_cast<int64_t>(prompt.size());
  if (room <= 0) {
    throw ConfigError("the prompt has " + std::to_string(prompt.size()) + " tokens, and seq_len " +
                          std::to_string(*length) + " leaves no room",
                      "Choose a larger one; it counts prompt and answer together.");
  }
  options.max_new_tokens =
      options.max_new_tokens == 0 ? room : std::min(room, options.max_new_tokens);
}

ChatTemplate::Variables variables_of(const Arguments& given) {
  const auto thinking = given.text("thinking");
  if (!thinking) return {};
  if (*thinking != "on" && *thinking != "off") throw UsageError("--thinking is on or off");
  return {{"enable_thinking", jinja::Value::boolean(*thinking == "on")}};
}

Json sampling_json(const SamplingOptions& sampling, const GenerationOptions& options) {
  return Json(JsonObject{
      {"temperature", sampling.temperature},
      {"top_k", static_cast<int64_t>(sampling.top_k)},
      {"top_p", sampling.top_p},
      {"min_p", sampling.min_p},
      {"repetition_penalty", sampling.repetition_penalty},
      {"seed", options.seed ? Json(static_cast<int64_t>(*options.seed)) : Json()},
      {"frequency_penalty", sampling.frequency_penalty},
      {"presence_penalty", sampling.presence_penalty},
      {"logit_bias", JsonObject{}},
  });
}

Json lookahead_json(const LookaheadStats& stats, double decode_tok_s) {
  const auto ratio = [](double a, double b) { return b > 0 ? Json(a / b) : Json(); };
  const auto number = [](uint64_t n) { return Json(static_cast<int64_t>(n)); };
  const auto plain_steps = static_cast<double>(stats.steps - stats.guessing_steps);
  const double plain = stats.plain_s > 0 ? plain_steps / stats.plain_s : 0;
  const bool off = stats.mode == LookaheadMode::off;
  return Json(JsonObject{
      {"mode", off                               ? "off"
               : stats.mode == LookaheadMode::on ? "on"
                                                 : "auto"},
      {"off_because", stats.off_because.empty() ? Json() : Json(stats.off_because)},
      {"ngram", Json()},
      {"window", off ? Json() : number(0)},
      {"gcap", off ? Json() : number(1)},
      {"branches", false},
      {"steps", number(stats.steps)},
      {"guessing_steps", number(stats.guessing_steps)},
      {"tokens_per_step",
       ratio(static_cast<double>(stats.tokens), static_cast<double>(stats.steps))},
      {"guessed", number(stats.guessed)},
      {"accepted", number(stats.accepted)},
      {"acceptance",
       ratio(static_cast<double>(stats.accepted), static_cast<double>(stats.guessed))},
      {"plain_tok_s", plain > 0 ? Json(plain) : Json()},
      {"speedup", decode_tok_s > 0 ? ratio(decode_tok_s, plain) : Json()},
  });
}

Json document(const std::string& text, const Generation& generation, Session& session,
              const GenerationOptions& options) {
  JsonList tokens;
  for (const uint32_t id : generation.tokens()) tokens.emplace_back(static_cast<int64_t>(id));
  const GenerationStats& stats = generation.stats();
  const Engine& engine = session.model().engine();
  return Json(JsonObject{
      {"text", text},
      {"tokens", std::move(tokens)},
      {"stop_reason", stop_reason_name(generation.stop_reason())},
      {"prompt_tokens", static_cast<int64_t>(stats.prompt_tokens)},
      {"reused_tokens", static_cast<int64_t>(stats.reused_tokens)},
      {"prefill_tok_s", stats.prefill_tok_s()},
      {"decode_tok_s", stats.decode_tok_s()},
      {"ttft_s", stats.ttft_s},
      {"context_slides", static_cast<int64_t>(stats.slides)},
      {"lookahead", lookahead_json(generation.lookahead(), stats.decode_tok_s())},
      {"sampling", sampling_json(options.sampling, options)},
      {"mode", session.model().find_method("prefill_forward") ? "hybrid" : "kv"},
      {"adapter", session.adapter().empty() ? Json() : Json(session.adapter())},
      {"threads", static_cast<int64_t>(engine.threads())},
      {"kernels", engine.kernels()},
      {"medians", Json()},
  });
}

void summarize(const Generation& generation) {
  const GenerationStats& stats = generation.stats();
  char line[256];
  std::snprintf(line, sizeof line,
                "[%zu prompt tokens · read at %.1f tok/s · %zu new tokens · "
                "first after %.2f s · "
                "then %.1f tok/s]",
                stats.prompt_tokens, stats.prefill_tok_s(), stats.new_tokens, stats.ttft_s,
                stats.decode_tok_s());
  say(line);
}

std::string stream(Generation& generation, bool shown, const Interrupt* interrupt = nullptr) {
  std::string whole, piece;
  while (piece.clear(), generation.next(piece)) {
    if (shown) emit_answer(piece);
    whole += piece;
    if (interrupt != nullptr && interrupt->came()) break;
  }
  if (shown) std::fputc('\n', stdout);
  return whole;
}

int answer(const Arguments& given, const std::string& text, bool may_be_raw) {
  const auto model = open_checked(given);
  Session session(model, given.text("adapter").value_or(""));
  bool raw = may_be_raw && given.has("raw");
  if (may_be_raw && !raw && !has_chat_template(model->metadata())) {
    say("This model has no chat template, so the prompt is continued as plain "
        "text (--raw).");
    raw = true;
  }
  GenerationOptions options = options_of(given, *model, false);
  if (!given.text("on-context-full")) options.slides = false;
  std::optional<ShownPictures> pictures;
  if (given.has("image")) {
    if (text.empty()) throw ConfigError("the prompt is empty", "Give a text or a message.");
    pictures.emplace(session);
    for (const std::string& path : given.texts("image")) pictures->add(path);
  }
  Tokens prompt;
  if (raw) {
    prompt = pictures ? pictures->text_prompt(text) : model->tokenizer().encode_prompt(text);
  } else {
    Conversation conversation(*model, variables_of(given));
    const auto system = given.text("system");
    if (system) conversation.add("system", *system);
    Message message{"user", text};
    if (pictures) {
      message = pictures->message(text, system.value_or(""));
      conversation.encode_with([&](const std::string& all) { return pictures->chat_prompt(all); });
    }
    Conversation::Turn turn = conversation.send(message.content, message.images);
    prompt = std::move(turn.prompt);
    options.keep = turn.keep;
  }
  limit(given, prompt, options);
  Generation generation(session, std::move(prompt), options);
  const bool json = given.has("json");
  const std::string whole = stream(generation, !json);
  if (json) {
    print_json(document(whole, generation, session, options));
  } else {
    summarize(generation);
  }
  return 0;
}

int converse(const Arguments& given) {
  const auto model = open_checked(given);
  Session session(model, given.text("adapter").value_or(""));
  Conversation conversation(*model, variables_of(given));
  if (const auto system = given.text("system")) conversation.add("system", *system);
  std::optional<ShownPictures> pictures;
  const auto show = [&](const std::string& path) {
    if (!pictures) {
      pictures.emplace(session);
      conversation.encode_with([&](const std::string& all) { return pictures->chat_prompt(all); });
    }
    open_picture_file(path);  // what cannot be read is said now
    pictures->add(path);
    say(path + " goes with your next message.");
  };
  say("Ctrl-C ends an answer, Ctrl-D the conversation.");
  for (std::string line; std::fputs("> ", stderr), read_line(line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    GenerationOptions options = options_of(given, *model, true);
    if (options.max_new_tokens == 0) options.max_new_tokens = model->context();
    bool is_said = false;
    try {
      if (line.starts_with(kShow)) {
        show(line.substr(kShow.size()));
        continue;
      }
      // The oldest half cannot be forgotten of a conversation with images.
      if (pictures && !pictures->empty()) options.slides = false;
      const Message message = pictures ? pictures->message(line) : Message{"user", line};
      Conversation::Turn turn = conversation.send(message.content, message.images);
      is_said = true;
      options.keep = turn.keep;
      Generation generation(session, std::move(turn.prompt), options);
      const Interrupt interrupt;  // ends the answer and not the conversation
      conversation.hear(stream(generation, true, &interrupt));
      if (pictures) pictures->keep();
      summarize(generation);
    } catch (const AdvisedError& error) {
      if (is_said) conversation.retract();
      say(std::string(error.what()) + ". " + error.advice);
    }
  }
  std::fputc('\n', stderr);
  return 0;
}

std::optional<std::string> prompt_of(const Arguments& given) {
  if (given.places().size() > 2) throw UsageError("there is more than one prompt");
  int count = given.places().size() == 2;
  count += given.has("prompt") + given.has("prompt-file") + given.has("input");
  if (count > 1) throw UsageError("there are two things to answer");
  if (given.places().size() == 2) return given.places()[1];
  if (const auto file = given.text("prompt-file")) return read_prompt(*file);
  if (const auto file = given.text("input")) return read_prompt(*file);
  return given.text("prompt");
}

}  // namespace

int run(int argc, char** argv) {
  const Arguments given(argc, argv, kFlags);
  check_usage(given);
  if (given.has("input") && given.places().size() == 1 && is_classifier(given.places()[0]))
    return classify(given);
  const auto prompt = prompt_of(given);
  if (!prompt) throw UsageError("there is nothing to answer");
  return answer(given, *prompt, true);
}

int chat(int argc, char** argv) {
  const Arguments given(argc, argv, kFlags);
  check_usage(given);
  const auto prompt = prompt_of(given);
  if (prompt) return answer(given, *prompt, false);
  if (given.has("image")) throw UsageError("in a conversation, /image FILE shows an image");
  if (given.has("json")) throw UsageError("a conversation is not one JSON object: give --prompt");
  return converse(given);
}

}  // namespace satchel::runner
