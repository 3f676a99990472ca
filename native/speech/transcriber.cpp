#include "transcriber.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../llm/errors.h"
#include "../llm/model.h"

namespace satchel::speech {

namespace {

constexpr double kFrameSeconds = 0.01;
constexpr double kNoSpeechLimit = 0.6, kLogProbabilityLimit = -1;  // openai-whisper's

int64_t whole_of(const llm::Json& metadata, const char* name) {
  const int64_t* found = metadata[name].whole();
  if (found == nullptr || *found < 1)
    throw FormatError("metadata", 0, std::string(name) + " is damaged", "Export it again.");
  return *found;
}

// The logarithm of the sum of the logits' powers.
double log_sum(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

// A text over the window, as long as it is decoded.
class OpenText {
 public:
  explicit OpenText(Instance& instance)
      : instance_(instance), sequence(instance.sequences().open()) {}
  ~OpenText() { instance_.sequences().close(sequence); }
  OpenText(const OpenText&) = delete;
  OpenText& operator=(const OpenText&) = delete;

 private:
  Instance& instance_;

 public:
  const int32_t sequence;
};

}  // namespace

bool Transcriber::Heard::is_silence() const {
  return no_speech > kNoSpeechLimit && mean_log_probability <= kLogProbabilityLimit;
}

Transcriber::Transcriber(const std::string& path, int threads)
    : program_(std::make_shared<Program>(path)) {
  const llm::Json metadata = llm::read_metadata(program_->file());
  const std::string* kind = metadata["kind"].text();
  if (kind == nullptr || *kind != "speech")
    throw ConfigError(path + " does not write down what is said",
                      "Export one of Whisper's checkpoints.");
  tokenizer_ = llm::open_tokenizer(program_);
  if (tokenizer_ == nullptr)
    throw ConfigError(path + " has no compiled tokenizer", "Export the model again.");
  mels_ = whole_of(metadata, "mels"), context_ = whole_of(metadata, "context");
  tokens_ = WhisperTokens::of_vocabulary(whole_of(metadata, "vocab_size"));
  rules_ = std::make_unique<WhisperRules>(tokens_, *tokenizer_);
  encode_ = method("encode"), decode_ = method("decode");
  const Method& encode = program_->methods()[encode_];
  const std::vector<int64_t>& mel = encode.values[encode.inputs.at(0)].shape;
  if (mel.size() != 2 || mel[0] < 1 || mel[1] != mels_)
    throw ConfigError(path + " does not take a spectrogram of the size that it says");
  frames_ = mel[0];
  instance_ = std::make_unique<Instance>(program_, threads);
}

size_t Transcriber::method(const char* name) const {
  const auto& methods = program_->methods();
  const auto found =
      std::find_if(methods.begin(), methods.end(), [&](const Method& m) { return m.name == name; });
  if (found == methods.end())
    throw ConfigError(std::string("the program has no method '") + name + "'");
  return static_cast<size_t>(found - methods.begin());
}

void Transcriber::listen(const std::vector<float>& window) {
  const std::lock_guard<std::recursive_mutex> lock(instance_->mutex());
  instance_->run(encode_, {{DType::f32, {frames_, mels_}, window.data()}});
}

std::vector<float> Transcriber::read(int32_t sequence, std::span<const uint32_t> tokens,
                                     size_t position, std::vector<int32_t> rows) {
  const Method& method = program_->methods()[decode_];
  const auto count = static_cast<int64_t>(tokens.size());
  const std::vector<int32_t> ids(tokens.begin(), tokens.end());
  const std::vector<int32_t> sequences(tokens.size(), sequence);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(position));
  std::vector<ArrayView> inputs;
  for (const uint32_t id : method.inputs) {
    const std::string& name = method.values[id].name;
    const std::vector<int32_t>* column = name == "tokens"     ? &ids
                                         : name == "position" ? &positions
                                         : name == "rows"     ? &rows
                                         : name == "sequence" ? &sequences
                                                              : nullptr;
    if (column == nullptr)
      throw ExecutionError("the method decode takes the input '" + name +
                           "', which is not known here");
    const int64_t size = column == &rows ? static_cast<int64_t>(rows.size()) : count;
    inputs.push_back({DType::i32, {size}, column->data()});
  }
  const std::lock_guard<std::recursive_mutex> lock(instance_->mutex());
  const std::vector<ArrayView> outputs = instance_->run(decode_, inputs);
  const auto vocabulary = static_cast<int64_t>(tokens_.first_timestamp() + 1501);
  if (outputs.size() != 1 || outputs[0].dtype != DType::f32 ||
      outputs[0].shape != std::vector<int64_t>{static_cast<int64_t>(rows.size()), vocabulary})
    throw ExecutionError("the method decode does not give the logits of its rows");
  const auto* first = static_cast<const float*>(outputs[0].data);
  return {first, first + outputs[0].shape[0] * vocabulary};
}

std::string Transcriber::detect_language(const Spectrogram& spectrogram) {
  if (!tokens_.multilingual()) return "en";
  listen(spectrogram.beginning(frames_));
  const OpenText text(*instance_);
  const uint32_t start = tokens_.start();
  const std::vector<float> logits = read(text.sequence, {&start, 1}, 0, {0});
  const auto first = logits.begin() + start + 1;
  const auto best = std::max_element(first, first + tokens_.languages);
  return tokens_.code(static_cast<uint32_t>(best - logits.begin()));
}

Transcriber::Heard Transcriber::hear(const llm::Tokens& prompt, size_t start) {
  const OpenText text(*instance_);
  std::vector<int32_t> rows = {static_cast<int32_t>(start)};
  if (start + 1 < prompt.size()) rows.push_back(static_cast<int32_t>(prompt.size() - 1));
  std::vector<float> logits = read(text.sequence, prompt, 0, rows);
  const size_t vocabulary = logits.size() / rows.size();
  const std::span<const float> silent(logits.data(), vocabulary);
  Heard heard{};
  heard.no_speech = std::exp(silent[tokens_.no_speech()] - log_sum(silent));
  logits.erase(logits.begin(), logits.end() - static_cast<int64_t>(vocabulary));
  double total = 0;
  auto position = static_cast<int64_t>(prompt.size());
  for (int64_t step = 0; step < context_ / 2; ++step, ++position) {
    rules_->apply(logits, heard.tokens);
    const auto best = std::max_element(logits.begin(), logits.end());
    const auto token = static_cast<uint32_t>(best - logits.begin());
    total += *best - log_sum(logits);
    if (token == tokens_.end) break;
    heard.tokens.push_back(token);
    if (position == context_) break;
    logits = read(text.sequence, {&token, 1}, static_cast<size_t>(position), {0});
  }
  heard.mean_log_probability = total / static_cast<double>(heard.tokens.size() + 1);
  return heard;
}

int64_t Transcriber::divide(const Heard& heard, double offset, int64_t frames,
                            std::vector<Segment>& segments) const {
  const llm::Tokens& tokens = heard.tokens;
  const uint32_t first = tokens_.first_timestamp();
  const auto is_time = [&](size_t at) { return tokens[at] >= first; };
  const auto seconds = [&](uint32_t token) { return (token - first) * kTimestampSeconds; };
  const size_t size = tokens.size();
  // Nothing is said behind the last timestamp.
  const bool alone = size >= 2 && !is_time(size - 2) && is_time(size - 1);
  const auto add = [&](llm::Tokens part, double start, double end) {
    llm::Tokens said;
    std::copy_if(part.begin(), part.end(), std::back_inserter(said),
                 [&](uint32_t token) { return token < tokens_.end; });
    segments.push_back({offset + start, offset + end, tokenizer_->decode(said), std::move(part),
                        heard.mean_log_probability, heard.no_speech});
  };
  std::vector<size_t> cuts;
  for (size_t at = 1; at < size; ++at) {
    if (is_time(at - 1) && is_time(at)) cuts.push_back(at);
  }
  if (cuts.empty()) {
    const auto latest = std::find_if(tokens.rbegin(), tokens.rend(),
                                     [&](uint32_t token) { return token >= first; });
    const bool told = latest != tokens.rend() && *latest != first;
    add(tokens, 0, told ? seconds(*latest) : static_cast<double>(frames) * kFrameSeconds);
    return frames;
  }
  if (alone) cuts.push_back(size);
  size_t from = 0;
  for (const size_t cut : cuts) {
    llm::Tokens part(tokens.begin() + static_cast<int64_t>(from),
                     tokens.begin() + static_cast<int64_t>(cut));
    const double start = seconds(part.front()), end = seconds(part.back());
    add(std::move(part), start, end);
    from = cut;
  }
  return alone ? frames : std::lround(seconds(tokens[cuts.back() - 1]) / kFrameSeconds);
}

Transcription Transcriber::transcribe(const std::string& audio,
                                      const std::optional<std::string>& language, bool translate,
                                      const std::function<void(const Segment&)>& tell) {
  if (translate && !tokens_.multilingual())
    throw ConfigError("this model knows English only", "Translate with a multilingual one.");
  if (language) tokens_.language(*language);
  const Spectrogram spectrogram(audio, mels_);
  Transcription said{
      language ? *language : detect_language(spectrogram), spectrogram.seconds(), {}};
  llm::Tokens begin = {tokens_.start()};
  if (tokens_.multilingual()) {
    begin.push_back(tokens_.language(said.language));
    begin.push_back(translate ? tokens_.translate() : tokens_.transcribe());
  }
  llm::Tokens before;  // of all that was said
  for (int64_t seek = 0; seek < spectrogram.frames();) {
    const int64_t count = std::min(frames_, spectrogram.frames() - seek);
    listen(spectrogram.window(seek, count, frames_));
    llm::Tokens prompt;
    if (!before.empty()) {
      const auto most = std::min<int64_t>(context_ / 2 - 1, static_cast<int64_t>(before.size()));
      prompt.push_back(tokens_.start_of_previous());
      prompt.insert(prompt.end(), before.end() - most, before.end());
    }
    const size_t start = prompt.size();
    prompt.insert(prompt.end(), begin.begin(), begin.end());
    const Heard heard = hear(prompt, start);
    if (heard.is_silence()) {
      seek += count;
      continue;
    }
    std::vector<Segment> segments;
    const double offset = static_cast<double>(seek) * kFrameSeconds;
    seek += std::max<int64_t>(1, divide(heard, offset, count, segments));
    for (Segment& segment : segments) {
      if (segment.start == segment.end ||
          segment.text.find_first_not_of(" \t\n\r") == std::string::npos)
        continue;
      before.insert(before.end(), segment.tokens.begin(), segment.tokens.end());
      tell(segment);
      said.segments.push_back(std::move(segment));
    }
  }
  return said;
}

}  // namespace satchel::speech
