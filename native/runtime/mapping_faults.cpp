#include "mapping_faults.h"

#if defined(__unix__) || defined(__APPLE__)

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

namespace satchel {

namespace {

// A signal may come at any time on any thread, so that the handler reads atomics and takes no lock.
struct Slot {
  std::atomic<uintptr_t> begin{0}, end{0};  // end is 0 where the slot is free
  std::atomic<bool> damaged{false};
};

constexpr int kSlots = 1024;
Slot slots[kSlots];
std::mutex changing;  // of slots and of the handler
struct sigaction before;
uintptr_t page_size = 4096;

// Whoever watched for the signal before us, or the system, which ends the process.
void pass_on(int signal, siginfo_t* info, void* context) {
  if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
    return before.sa_handler(signal);
  struct sigaction by_default{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(signal, &by_default, nullptr);  // the instruction is tried again, and ends it
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    if (address < slot.begin.load() || address >= slot.end.load()) continue;
    slot.damaged.store(true);
    void* page = reinterpret_cast<void*>(address / page_size * page_size);
    if (::mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        page) {
      errno = error;
      return;
    }
    break;
  }
  errno = error;
  pass_on(signal, info, context);
}

void install_handler() {
  static std::once_flag installed;
  std::call_once(installed, [] {
    page_size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &before);
  });
}

}  // namespace

void WatchedMapping::watch(const uint8_t* data, uint64_t size) {
  install_handler();
  const std::lock_guard<std::mutex> lock(changing);
  for (int i = 0; i < kSlots && slot_ < 0; ++i) {
    if (slots[i].end.load() != 0) continue;
    slot_ = i;
    slots[i].damaged.store(false);
    slots[i].begin.store(reinterpret_cast<uintptr_t>(data));
    slots[i].end.store(reinterpret_cast<uintptr_t>(data) + size);
  }
}

void WatchedMapping::stop() {
  if (slot_ < 0) return;
  const std::lock_guard<std::mutex> lock(changing);
  slots[slot_].end.store(0);
  slot_ = -1;
}

bool WatchedMapping::intact() const { return slot_ < 0 || !slots[slot_].damaged.load(); }

}  // namespace satchel

#else

namespace satchel {

void WatchedMapping::watch(const uint8_t*, uint64_t) {}
void WatchedMapping::stop() {}
bool WatchedMapping::intact() const { return true; }

}  // namespace satchel

#endif
