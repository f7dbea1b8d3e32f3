#include "launch/signals.h"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace hadal {
namespace {

// The one global of the program: a signal handler can reach nothing else. Any thread may run the handler.
std::atomic<bool> stop_signalled = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // what a handler may touch

void OnSignal(int signal) {
  if (stop_signalled && (signal == SIGINT || signal == SIGTERM)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_signalled = true;
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

void IgnoreFileSizeSignal() { std::signal(SIGXFSZ, SIG_IGN); }

void IgnoreClosedPipes() { std::signal(SIGPIPE, SIG_IGN); }

bool StopSignalled() { return stop_signalled; }

}  // namespace hadal
