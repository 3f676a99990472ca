// satchel-run: a program's commands without Python.
#include <cstdio>
#include <cstring>

#include "../llm/errors.h"
#include "commands.h"

using namespace satchel;
using namespace satchel::runner;

namespace {

constexpr const char* kUsage =
    "usage: satchel-run COMMAND FILE …\n"
    "\n"
    "  run FILE TEXT      answer one prompt; --raw continues a text\n"
    "  run FILE --input P the classes of a picture (PNG, JPEG) or a folder of them\n"
    "  run FILE TEXT --image P  the same about pictures (PNG, JPEG), to a model that sees; "
    "repeatable\n"
    "  chat FILE          a conversation, in which /image P shows a picture; --prompt TEXT "
    "answers\n"
    "                     one thing and leaves\n"
    "  bench FILE         prefill and decode speed, time to first token, "
    "memory;\n"
    "                     of other models the time of a call\n"
    "  transcribe FILE A  what is said in WAV files; --format txt|srt|vtt --language CODE\n"
    "                     --task transcribe|translate\n"
    "  inspect FILE       what is in it\n"
    "  verify FILE        every byte against its checksum\n"
    "  tokenize FILE TEXT the tokens of a text\n"
    "\n"
    "run and chat: --system TEXT --max-new-tokens N --seq-len N --temperature "
    "T --top-k K --top-p P\n"
    "  --min-p P --repetition-penalty R --seed N --stop TEXT --on-context-full "
    "stop|slide\n"
    "  --thinking on|off --adapter NAME --prompt-file FILE --lookahead auto|on|off\n"
    "run --input: --top N --warmup N --iterations N --cool-down S\n"
    "bench: --prompt-tokens N --new-tokens N --warmup N --runs N --cool-down S\n"
    "run, chat and bench: --target cpu|vulkan[:DEVICE[:LAYERS]]|qnn:CHIP\n"
    "all: --threads N --verify --json\n";

struct Command {
  const char* name;
  int (*execute)(int, char**);
};

constexpr Command kCommands[] = {
    {"run", run},         {"chat", chat},     {"bench", bench},      {"transcribe", transcribe},
    {"inspect", inspect}, {"verify", verify}, {"tokenize", tokenize}};

bool asks_for_help(const char* word) {
  return std::strcmp(word, "--help") == 0 || std::strcmp(word, "-h") == 0;
}

int failed(const char* message, const std::string& advice) {
  say(std::string("satchel-run: ") + message + (advice.empty() ? "" : ". " + advice));
  return 1;
}

// A result that nobody got is a failure.
int finished(int status) {
  return status != 0 || is_written() ? status : failed("the result could not be written", "");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("satchel-run %s\n", SATCHEL_VERSION);
    return 0;
  }
  if (argc > 1 && (std::strcmp(argv[1], "help") == 0 || asks_for_help(argv[1]) ||
                   (argc == 3 && asks_for_help(argv[2])))) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    for (const Command& command : kCommands) {
      if (argc > 1 && std::strcmp(argv[1], command.name) == 0)
        return finished(command.execute(argc - 2, argv + 2));
    }
    throw UsageError(argc > 1 ? std::string("there is no command '") + argv[1] + "'"
                              : std::string("a command is missing"));
  } catch (const UsageError& error) {
    say(std::string("satchel-run: ") + error.what() + ". satchel-run --help shows how it is used.");
    return 2;
  } catch (const FormatError& error) {
    // The beginning of the whole file is no place that would tell anyone more.
    const bool nowhere = (error.section.empty() || error.section == "file") && error.offset == 0;
    const std::string where =
        " (section " + error.section + ", offset " + std::to_string(error.offset) + ")";
    return failed((error.what() + (nowhere ? std::string() : where)).c_str(), error.advice);
  } catch (const AdvisedError& error) {
    return failed(error.what(), error.advice);
  } catch (const TokenizerError& error) {
    return failed(error.what(), error.advice);
  } catch (const std::exception& error) {
    return failed(error.what(), "");
  }
}
