#include "launch/job/signals.h"

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include "launch/job/exit_code.h"
#include "runtime/mapped_ranges.h"

namespace hadal {
namespace {

// Globals, since a signal handler can reach nothing else. Any thread may run the handler.
std::atomic<bool> stop_signalled = false;
std::atomic<bool> stop_ordered = false;                 // by INT or TERM, the second of which insists
static_assert(std::atomic<bool>::is_always_lock_free);  // what a handler may touch

// Around the file's name.
constexpr const char* kLostPage[] = {"hadal: ",
                                     ": a part of the file is gone while it is in use: somebody has made it shorter, "
                                     "or its disk fails; restore it from a copy, or run hadal prepare again\n"};

void OnSignal(int signal) {
  const bool orders = signal == SIGINT || signal == SIGTERM;
  if (orders && stop_ordered.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_signalled = true;
}

void OnLostPage(int signal, siginfo_t* info, void* /*context*/) {
  const char* const path = MappedPathAt(info->si_addr);
  if (path == nullptr) {  // no file's: as if there were no handler
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

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // see runtime/compute_thread.h
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGUSR1, SIGINT, SIGTERM, SIGHUP}) {
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
