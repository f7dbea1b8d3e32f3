#include "tools/deferred_signals.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"

namespace hadal {
namespace {

constexpr int kDeferred[] = {SIGTERM, SIGINT, SIGHUP};

}  // namespace

DeferredSignals::DeferredSignals() {
  sigemptyset(&signals_);
  for (const int signal : kDeferred) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&signals_, signal);
  }
  sigset_t blocked = signals_;
  sigaddset(&blocked, SIGCHLD);  // WaitFor waits for it
  pthread_sigmask(SIG_BLOCK, &blocked, &before_);
}

DeferredSignals::~DeferredSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  if (received_ == 0 || sigismember(&before_, received_) == 1) return;
  // The process is still there: a handler took the signal. If it has given the signal its default effect back, another
  // thread ends the process (tools/output/staged_output.cc).
  struct sigaction action = {};
  sigaction(received_, nullptr, &action);
  while (action.sa_handler == SIG_DFL) pause();
}

absl::StatusOr<int> DeferredSignals::WaitFor(pid_t child) const {
  constexpr timespec kLongest = {.tv_sec = 1, .tv_nsec = 0};  // another thread may have taken SIGCHLD
  sigset_t awaited = signals_;
  sigaddset(&awaited, SIGCHLD);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
    const int signal = sigtimedwait(&awaited, nullptr, &kLongest);
    if (signal <= 0 || signal == SIGCHLD) continue;
    kill(child, signal == SIGINT && received_ == SIGINT ? SIGKILL : signal);
    received_ = signal;
  }
  if (received_ != 0) kill(getpid(), received_);  // takes its effect at this object's end
  if (ended < 0) return absl::InternalError(absl::StrCat("waiting for a child: ", std::strerror(errno)));
  return status;
}

void DeferredSignals::EndInChild() const {
  sigset_t blocked = signals_;
  sigaddset(&blocked, SIGCHLD);
  for (const int signal : kDeferred) {
    if (sigismember(&signals_, signal) == 1) std::signal(signal, SIG_DFL);
  }
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);  // not before_: an outer object's
}

}  // namespace hadal
