#include "launch/supervisor_state.h"

#include <signal.h>

#include <algorithm>

#include "launch/exit_code.h"

namespace hadal {
namespace {

using enum SupervisorState;
using enum SupervisorEvent;
using Action = SupervisorAction;

bool IsCrash(const JobEnd& end) {
  const int code = EndCode(end);
  if (end.elastic && !end.begun && (code == kExitDone || end.begun_before)) return true;
  if (end.growing && code == kExitError) return true;
  return code == kExitHang || code == kExitPeerLost || code >= kSignalExit || (end.begun && !end.ended);
}

// Repeated each second for a job that is to end.
Action Urge(SupervisorState state) {
  if (state == kAsked || state == kOrdered || state == kGrowing) return Action::kAsk;
  if (state == kTerminating) return Action::kTerm;
  return state == kKilling ? Action::kKill : Action::kNone;
}

SupervisorState AfterOrder(SupervisorState state) {
  if (state == kRunning || state == kGrowing || state == kAsked) return kOrdered;
  return state == kOrdered ? kTerminating : kKilling;
}

SupervisorStep OnJobEnd(SupervisorState state, SupervisorEvent event) {
  if (event == kSaved && state == kGrowing) return {kProbing, Action::kProbe};
  if (event == kSaved) return {kEnded, Action::kReturn85};
  if (event == kFinal) return {kEnded, Action::kReturnCode};
  if (event == kCrash && (state == kRunning || state == kGrowing)) return {kProbing, Action::kProbe};
  return {kEnded, Action::kReturnCrash};
}

// Without a job: backing off or probing.
SupervisorStep BetweenJobs(SupervisorState state, SupervisorEvent event) {
  if (event == kInterrupt || event == kRequest) return {kEnded, Action::kReturn85};
  if (state == kBackOff && event == kWaited) return {kProbing, Action::kProbe};
  if (state == kProbing && event == kHosts) return {kRunning, Action::kStart};
  if (state == kProbing && (event == kCrash || event == kFew)) return {kBackOff, Action::kWait};
  if (state == kProbing && event == kLastCrash) return {kEnded, Action::kReturnCrash};
  return {state};
}

}  // namespace

SupervisorStep Next(SupervisorState state, SupervisorEvent event) {
  if (state == kEnded) return {kEnded};
  if (state == kBackOff || state == kProbing) return BetweenJobs(state, event);
  if (event == kHosts && state == kRunning) return {kGrowing, Action::kAsk};
  if (event == kWaited || event == kHosts || event == kFew) return {state};
  if (event == kInterrupt) state = AfterOrder(state);
  if (event == kRequest && (state == kRunning || state == kGrowing)) state = kAsked;
  const bool job_runs = event == kInterrupt || event == kRequest || event == kSecond;
  return job_runs ? SupervisorStep{state, Urge(state)} : OnJobEnd(state, event);
}

int EndCode(const JobEnd& end) {
  if (end.failure != 0 && (end.code == kExitDone || end.code == kExitError)) return end.failure;
  return end.code > kExitPeerLost && end.code <= SIGSYS ? kSignalExit + end.code : end.code;
}

SupervisorEvent EventOf(const JobEnd& end) {
  const bool unready = (end.code == kSignalExit + SIGUSR1 || end.code == kSignalExit + SIGUSR2) && !end.begun;
  if (end.code == kExitRequeue || end.saved || unready) return kSaved;
  return IsCrash(end) ? kCrash : kFinal;
}

absl::Duration BackOff(int fruitless, absl::Duration first, absl::Duration since_start) {
  if (fruitless == 0) return std::max(absl::ZeroDuration(), first - since_start);
  absl::Duration wait = first;
  for (int i = 1; i < fruitless && wait < kLongestBackOff; ++i) wait *= 2;
  return std::min(wait, std::max(first, kLongestBackOff));
}

}  // namespace hadal
