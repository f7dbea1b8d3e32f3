#include "launch/signals.h"

#include <csignal>
#include <initializer_list>

namespace hadal {
namespace {

// The one global of the program: a signal handler can reach nothing else.
volatile std::sig_atomic_t stop_signalled = 0;

void OnSignal(int signal) {
  if (stop_signalled != 0 && signal != SIGUSR1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_signalled = 1;
}

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // see runtime/compute_thread.h
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGUSR1, SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

bool StopSignalled() { return stop_signalled != 0; }

}  // namespace hadal
