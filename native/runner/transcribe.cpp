// transcribe: what is said in WAV files, as text or subtitles.
#include <cmath>
#include <cstdio>

#include "../llm/verify.h"
#include "../speech/transcriber.h"
#include "arguments.h"
#include "commands.h"

namespace satchel::runner {

namespace {

using llm::Json;
using llm::JsonList;
using llm::JsonObject;
using speech::Segment;

std::string clock(double seconds, char point) {
  const auto all = static_cast<long long>(std::llround(seconds * 1000));
  char text[32];
  std::snprintf(text, sizeof text, "%02lld:%02lld:%02lld%c%03lld", all / 3600000, all / 60000 % 60,
                all / 1000 % 60, point, all % 1000);
  return text;
}

std::string stripped(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

// A segment as a line or as a subtitle.
std::string written(const Segment& segment, size_t number, const std::string& format) {
  std::string text = stripped(segment.text);
  if (format == "txt") return text + "\n";
  // An arrow would be taken for a time.
  for (size_t at; (at = text.find("-->")) != std::string::npos;) text.replace(at, 3, "->");
  const char point = format == "srt" ? ',' : '.';
  const std::string times = clock(segment.start, point) + " --> " + clock(segment.end, point);
  return (format == "srt" ? std::to_string(number) + "\n" : "") + times + "\n" + text + "\n\n";
}

Json document(const std::string& audio, const speech::Transcription& said) {
  std::string text;
  JsonList segments;
  for (const Segment& segment : said.segments) {
    text += segment.text;
    JsonList tokens;
    for (const uint32_t token : segment.tokens) tokens.emplace_back(static_cast<int64_t>(token));
    segments.push_back(JsonObject{{"start", segment.start},
                                  {"end", segment.end},
                                  {"text", segment.text},
                                  {"tokens", std::move(tokens)},
                                  {"mean_log_probability", segment.mean_log_probability},
                                  {"no_speech", segment.no_speech}});
  }
  return JsonObject{{"audio", audio},
                    {"text", std::move(text)},
                    {"language", said.language},
                    {"seconds", said.seconds},
                    {"segments", std::move(segments)}};
}

}  // namespace

int transcribe(int argc, char** argv) {
  const Arguments given(argc, argv,
                        {"language=", "task=", "format=", "threads=", "verify", "json"});
  if (given.places().size() < 2) throw UsageError("transcribe takes a program and WAV files");
  const std::string format = given.text("format").value_or("txt");
  if (format != "txt" && format != "srt" && format != "vtt")
    throw UsageError("--format is txt, srt or vtt");
  const std::string task = given.text("task").value_or("transcribe");
  if (task != "transcribe" && task != "translate")
    throw UsageError("--task is transcribe or translate");
  const auto threads = static_cast<int>(given.whole("threads", 1, kMostThreads).value_or(0));
  speech::Transcriber transcriber(given.places()[0], threads);
  if (given.has("verify")) llm::verify(transcriber.program().file());
  JsonList documents;
  for (size_t i = 1; i < given.places().size(); ++i) {
    const std::string& audio = given.places()[i];
    const bool json = given.has("json");
    if (!json && given.places().size() > 2) emit(audio + ":");
    if (!json && format == "vtt") emit_answer("WEBVTT\n\n");
    size_t number = 0;
    const auto said = transcriber.transcribe(audio, given.text("language"), task == "translate",
                                             [&](const Segment& segment) {
                                               if (!json)
                                                 emit_answer(written(segment, ++number, format));
                                             });
    documents.push_back(document(audio, said));
  }
  if (given.has("json")) print_json(Json(JsonObject{{"transcriptions", std::move(documents)}}));
  return 0;
}

}  // namespace satchel::runner
