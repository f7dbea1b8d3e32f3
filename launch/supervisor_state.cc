#include "launch/supervisor_state.h"

#include <signal.h>

#include <algorithm>

#include "launch/exit_code.h"

namespace hadal {
namespace {

using enum SupervisorState;
using enum SupervisorEvent;
using Action = SupervisorAction;

constexpr int kSignalExit = 128;  // exit code of a shell and of mpirun for "ended by signal n": 128 + n

bool IsCrash(const JobEnd& end) {
  const bool lost = end.code == kExitHang || end.code == kExitPeerLost || end.code >= kSignalExit;
  return lost || (end.code == kExitError && end.begun && !end.ended);
}

// Repeated each second for a job that is to end.
Action Urge(SupervisorState state) {
  if (state == kAsked || state == kOrdered) return Action::kAsk;
  if (state == kTerminating) return Action::kTerminate;
  return state == kKilling ? Action::kKill : Action::kNone;
}

SupervisorState AfterOrder(SupervisorState state) {
  if (state == kRunning || state == kAsked) return kOrdered;
  return state == kOrdered ? kTerminating : kKilling;
}

SupervisorStep OnJobEnd(SupervisorState state, SupervisorEvent event) {
  if (event == kSaved) return {kEnded, Action::kReturnSaved};
  if (event == kFinal) return {kEnded, Action::kReturnCode};
  if (event == kCrash && state == kRunning) return {kBackingOff, Action::kWait};
  return {kEnded, Action::kReturnCrash};
}

}  // namespace

SupervisorStep Next(SupervisorState state, SupervisorEvent event) {
  if (state == kEnded) return {kEnded};
  if (state == kBackingOff) {
    if (event == kWaitOver) return {kRunning, Action::kStart};
    return event == kOrder || event == kRequest ? SupervisorStep{kEnded, Action::kReturnSaved} : SupervisorStep{state};
  }
  if (event == kWaitOver) return {state};
  if (event == kOrder) state = AfterOrder(state);
  if (event == kRequest && state == kRunning) state = kAsked;
  const bool job_runs = event == kOrder || event == kRequest || event == kSecond;
  return job_runs ? SupervisorStep{state, Urge(state)} : OnJobEnd(state, event);
}

int FromLauncher(int code) { return code > kExitPeerLost && code < SIGSYS ? kSignalExit + code : code; }

SupervisorEvent EventOf(const JobEnd& end, bool last) {
  const bool unready = end.code == kSignalExit + SIGUSR1 && !end.begun;
  if (end.code == kExitRequeue || end.saved || unready) return kSaved;
  if (!IsCrash(end)) return kFinal;
  return last ? kLastCrash : kCrash;
}

absl::Duration BackOff(int fruitless, absl::Duration first, absl::Duration since_start) {
  if (fruitless == 0) return std::max(absl::ZeroDuration(), first - since_start);
  absl::Duration wait = first;
  for (int i = 1; i < fruitless && wait < kLongestBackOff; ++i) wait *= 2;
  return std::min(wait, std::max(first, kLongestBackOff));
}

}  // namespace hadal
