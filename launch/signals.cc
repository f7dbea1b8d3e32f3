#include "launch/signals.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include "launch/exit_code.h"
#include "runtime/mapped_file.h"

namespace hadal {
namespace {

// Globals, because a signal handler can access nothing else. Any thread may run the handler.
std::atomic<bool> stop_signalled = false;
std::atomic<bool> interrupted = false;                  // by INT; the second one ends the process
static_assert(std::atomic<bool>::is_always_lock_free);  // required in a signal handler

// Printed before and after the file's name.
constexpr const char* kLostPage[] = {"hadal: ",
                                     ": a part of the file is gone while it is in use: it was truncated, "
                                     "or its disk fails; restore it from a copy, or run hadal prepare again\n"};

void OnSignal(int signal) {
  if (signal == SIGINT && interrupted.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_signalled = true;
}

void OnLostPage(int signal, siginfo_t* info, void* /*context*/) {
  const char* const path = MappedPathAt(info->si_addr);
  if (path == nullptr) {  // not a mapped file: as without a handler
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  iovec words[] = {{const_cast<char*>(kLostPage[0]), std::strlen(kLostPage[0])},
                   {const_cast<char*>(path), std::strlen(path)},
                   {const_cast<char*>(kLostPage[1]), std::strlen(kLostPage[1])}};
  [[maybe_unused]] const ssize_t written = writev(STDERR_FILENO, words, std::size(words));
  _exit(kExitCheckpoint);
}

// nohup ignores SIGHUP. UCX, which Open MPI 5 loads with the program, replaces that by a handler of its own before main
// (UCX_DEBUG_SIGNO). So whether SIGHUP is ignored is read before all libraries' constructors, and restored after them.
// A system call, and no sanitizer: theirs are not set up yet.
bool hangup_ignored = false;
[[gnu::no_sanitize("address", "thread", "undefined")]] void ReadHangup(int, char**, char**) {
  unsigned long action[4] = {};  // the kernel's sigaction, the handler first
  hangup_ignored = syscall(SYS_rt_sigaction, SIGHUP, nullptr, action, sizeof(unsigned long)) == 0 &&
                   action[0] == reinterpret_cast<unsigned long>(SIG_IGN);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const read_hangup)(int, char**, char**) = ReadHangup;
[[gnu::constructor]] void RestoreHangup() {
  if (hangup_ignored) std::signal(SIGHUP, SIG_IGN);
}

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // see runtime/compute_thread.h
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    const bool nohup = signal == SIGHUP && before.sa_handler == SIG_IGN;
    if (!nohup) sigaction(signal, &action, nullptr);
  }
}

void ExplainLostPages() {
  struct sigaction action = {};
  action.sa_sigaction = OnLostPage;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

void IgnoreFileSizeSignal() { std::signal(SIGXFSZ, SIG_IGN); }

void IgnoreClosedPipes() { std::signal(SIGPIPE, SIG_IGN); }

bool StopSignalled() { return stop_signalled; }

}  // namespace hadal
