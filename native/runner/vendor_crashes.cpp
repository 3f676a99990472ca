// A crash in a vendor's library ends the runner with a reason.
#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "../qnn/vendor_call.h"
#include "commands.h"

namespace satchel::runner {

namespace {

// Not SIGBUS: who reads mapped files needs it (runtime/mapping_faults.h).
constexpr int kCrashes[] = {SIGSEGV, SIGILL, SIGFPE, SIGABRT};

const char* name_of(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGILL:
      return "SIGILL";
    case SIGFPE:
      return "SIGFPE";
    default:
      return "SIGABRT";
  }
}

// After a crash nothing is whole, so that this does no more than write and end.
void on_crash(int signal) {
  const char* doing = qnn::vendor_call.load();
  if (doing == nullptr) {  // our own: as if nobody had asked
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  for (const char* part :
       {"satchel-run: Qualcomm's libraries crashed (", name_of(signal), ") while ", doing,
        ". --target cpu needs none of them; docs/qnn.md has what they are known to fail at.\n"}) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  ::_exit(1);
}

}  // namespace

void watch_vendor_crashes() {
  // A stack that ran over cannot hold the handler.
  static char stack[1 << 16];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof stack;
  ::sigaltstack(&other, nullptr);
  struct sigaction action{};
  action.sa_handler = on_crash;
  action.sa_flags = SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const int crash : kCrashes) ::sigaction(crash, &action, nullptr);
}

}  // namespace satchel::runner
