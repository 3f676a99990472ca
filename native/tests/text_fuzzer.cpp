// Damages compiled tokenizers and chat templates, and uses what is still accepted. Built with
// sanitizers, the first thing that it does wrong ends it:
//   text_fuzzer SECONDS SEED FILE…    (sections `text`, and templates that end with .jinja)
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../llm/errors.h"
#include "../llm/template/template.h"
#include "../llm/text_stream.h"
#include "../llm/tokenizer.h"

using namespace satchel;
using namespace satchel::llm;

namespace {

struct Counts {
  uint64_t accepted = 0, refused = 0;
};

const char* const kTexts[] = {"Hello, world! It's 12345.",
                              "日本語 \xf0\x9f\x98\x80 e\xcc\x81\r\n\t  x",
                              "<|im_start|>user\n<s></s> \xe2\x96\x81the", "\x7f\x01 'll 'RE ½ ﬁ"};

std::string damaged(std::string data, std::mt19937_64& random, bool words) {
  const int times = 1 + static_cast<int>(random() % 6);
  for (int i = 0; i < times && data.size() > 8; ++i) {
    // Half of the damage is in the beginning, where the places of things are.
    const size_t range = random() % 2 == 0 ? std::min<size_t>(data.size(), 1024) : data.size();
    const size_t at = random() % range;
    switch (random() % 4) {
      case 0:
        data[at] = static_cast<char>(random());
        break;
      case 1:
        if (words && at / 4 * 4 + 4 <= data.size()) {
          const uint32_t odd[] = {0,
                                  1,
                                  255,
                                  0x7fffffff,
                                  0xffffffff,
                                  static_cast<uint32_t>(data.size()),
                                  static_cast<uint32_t>(random() % 64)};
          std::memcpy(&data[at / 4 * 4], &odd[random() % 7], 4);
        } else {
          data.insert(at, "{%}|('"[random() % 6] + std::string(random() % 3, '{'));
        }
        break;
      case 2:
        std::swap(data[at], data[random() % data.size()]);
        break;
      default:
        if (random() % 8 == 0) data.resize(at);
        if (!words) data.erase(at, random() % 4);
    }
  }
  return data;
}

void use_section(const std::string& section) {
  auto copy = std::make_shared<std::vector<double>>(section.size() / 8 + 1);
  std::memcpy(copy->data(), section.data(), section.size());
  const auto* bytes = reinterpret_cast<const uint8_t*>(copy->data());
  const Tokenizer tokenizer(std::span(bytes, section.size()), 0, copy);
  for (const char* text : kTexts) {
    Tokens ids;
    try {
      ids = tokenizer.encode_prompt(text);
    } catch (const TokenizerError&) {
      continue;
    }
    ids.push_back(0xFFFFFFFF);
    tokenizer.decode(ids, false);
    TextStream stream(tokenizer, {"x", "the"}, ids);
    for (const uint32_t id : ids) stream.push(id);
    stream.finish();
  }
}

void use_template(const std::string& source) {
  const Json values = Json::parse(
      R"({"messages": [{"role": "system", "content": "Be é"}, {"role": "user", "content": "Hi"},
          {"role": "assistant", "content": "<think>\n</think> x", "tool_calls": [{"function": {"name": "f",
          "arguments": {"a": [1, 2.5, null, true]}}}]}, {"role": "tool", "content": "{}"}],
          "tools": [{"name": "f"}], "bos_token": "<s>", "add_generation_prompt": true})",
      "values");
  std::map<std::string, jinja::Value> given;
  for (const auto& [name, value] : *values.object()) given[name] = jinja::Value::from(value);
  jinja::Template(source).render(std::move(given));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s SECONDS SEED FILE…\n", argv[0]);
    return 2;
  }
  std::mt19937_64 random(std::strtoull(argv[2], nullptr, 10));
  std::vector<std::pair<std::string, bool>> seeds;
  for (int i = 3; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    std::string data{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    seeds.emplace_back(std::move(data), std::string_view(argv[i]).ends_with(".jinja"));
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  Counts counts[2];
  while (std::chrono::steady_clock::now() < end) {
    const auto& [seed, is_template] = seeds[random() % seeds.size()];
    const std::string data = damaged(seed, random, !is_template);
    try {
      if (is_template) {
        use_template(data);
      } else {
        use_section(data);
      }
      ++counts[is_template].accepted;
    } catch (const FormatError&) {
      ++counts[is_template].refused;
    } catch (const TemplateError&) {
      ++counts[is_template].refused;
    }
  }
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "{\"files\": %llu, \"sections\": %llu, \"refused_sections\": %llu, \"templates\": %llu, "
      "\"refused_templates\": %llu}\n",
      number(counts[0].accepted + counts[0].refused + counts[1].accepted + counts[1].refused),
      number(counts[0].accepted + counts[0].refused), number(counts[0].refused),
      number(counts[1].accepted + counts[1].refused), number(counts[1].refused));
}
