// A program that writes down what is said: Whisper's sequential algorithm at temperature 0.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../llm/tokenizer.h"
#include "../runtime/instance.h"
#include "spectrogram.h"
#include "whisper_tokens.h"

namespace satchel::speech {

struct Segment {
  double start, end;  // in seconds
  std::string text;
  llm::Tokens tokens;
  double mean_log_probability, no_speech;
};

struct Transcription {
  std::string language;
  double seconds;
  std::vector<Segment> segments;
};

class Transcriber {
 public:
  // 0 threads: one for each core. Throws FormatError if the file is not a valid program,
  // ConfigError if it does not hear, or has no compiled tokenizer.
  explicit Transcriber(const std::string& path, int threads = 0);

  const Program& program() const { return *program_; }

  // A WAV file. The language is that of its beginning unless it is given by its code; segments are
  // told as windows are heard. One caller at a time.
  Transcription transcribe(const std::string& audio, const std::optional<std::string>& language,
                           bool translate, const std::function<void(const Segment&)>& tell);

 private:
  struct Heard {
    llm::Tokens tokens;
    double mean_log_probability, no_speech;
    bool is_silence() const;
  };

  size_t method(const char* name) const;
  void listen(const std::vector<float>& window);
  // The logits behind some of the tokens of a sequence that begin at `position`.
  std::vector<float> read(int32_t sequence, std::span<const uint32_t> tokens, size_t position,
                          std::vector<int32_t> rows);
  std::string detect_language(const Spectrogram& spectrogram);
  Heard hear(const llm::Tokens& prompt, size_t start);
  // A window's tokens as segments between timestamps; returns how many frames to go on.
  int64_t divide(const Heard& heard, double offset, int64_t frames,
                 std::vector<Segment>& segments) const;

  std::shared_ptr<Program> program_;
  std::unique_ptr<llm::Tokenizer> tokenizer_;
  int64_t mels_ = 0, context_ = 0, frames_ = 0;  // frames: of a window
  WhisperTokens tokens_;
  std::unique_ptr<WhisperRules> rules_;
  std::unique_ptr<Instance> instance_;
  size_t encode_ = 0, decode_ = 0;
};

}  // namespace satchel::speech
