// The supervisor's states, and what each event does in them: a pure function. launch/supervisor.cc turns signals,
// time and the job's end into events, and carries out the actions.
//
//   state        INT                  TERM USR1 HUP a second  saved    final   crash        last crash  wait over
//   running      → ordered: ask       → asked: ask  –         ends 85  ends c  → probing    ends 5, 6   –
//   growing      → ordered: ask       → asked: ask  ask       probing  ends c  → probing    ends 5, 6   –
//   asked        → ordered: ask       ask           ask       ends 85  ends c  ends 5, 6    ends 5, 6   –
//   ordered      → terminating: TERM  ask           ask       ends 85  ends c  ends 5, 6    ends 5, 6   –
//   terminating  → killing: KILL      TERM          TERM      ends 85  ends c  ends 5, 6    ends 5, 6   –
//   killing      KILL                 KILL          KILL      ends 85  ends c  ends 5, 6    ends 5, 6   –
//   backing off  ends 85              ends 85       –         –        –       –            –           → probing
//   probing      ends 85              ends 85       –         –        –       backing off  ends 5, 6   –
//   ended        –                    –             –         –        –       –            –           –
//
//   hosts        running → growing: ask; probing → running: start; elsewhere –
//   too few      probing → backing off; elsewhere –
//
//   A cell names the next state, if it changes, and the action. The columns are events:
//   INT, TERM … signals to the supervisor; USR2 as USR1. Only INT escalates: Slurm sends USR1, then TERM twice within a
//               second, and a closed terminal sends HUP twice
//   a second    one second has passed
//   ask         USR1 to the job, which saves and exits 85; repeated each second, since a job that is still starting
//               does not handle the signal yet. TERM and KILL are also sent to the job
//   saved       the job's exit code is 85; or a rank reported 85 and the launcher returned something else (mpirun: 1,
//               if TERM is sent to mpirun itself); or USR1 or USR2 ended the job before rank 0 had begun: nothing
//               to save
//   crash       the exit code (EndCode) is 5 (a rank hung), 6 or ≥ 128 (a rank or the launcher was lost); or rank 0 had
//               begun and no rank reported an end, whatever the code: Open MPI 4 returns 1 if TERM ended the ranks
//               before they could save, Open MPI 5 returns 0 if a host is lost, a script returns anything.
//               Of an elastic job also: rank 0 has not begun, but had before (no run directory there), or code 0;
//               code 1 while growing, because only the supervisor asked for that save
//   last crash  a crash, and all tries (supervisor.h) are used up
//   wait over   the wait before the next start has passed
//   hosts       of an elastic job: while it runs, hosts answer with which it is faster; while probing, other hosts than
//               at the last start, or the same after a wait. Without --elastic: the first start, and after a wait
//   too few     no layout runs on the hosts that answer
//   probing     finds the hosts that answer (elastic_job.h). After a crash the same hosts are a crash, or, if all tries
//               are used up, the last crash. Without --elastic, at once
//   final       any other end: a restart would not change it
//   ends c      returns the job's exit code;  ends 5, 6: returns 5 if the job's exit code was 5, else 6
//   –           no effect; while backing off or probing, and after the end, there is no job
// Thread safety: pure functions.
#pragma once

#include "absl/time/time.h"

namespace hadal {

enum class SupervisorState { kRunning, kGrowing, kAsked, kOrdered, kTerminating, kKilling, kBackOff, kProbing, kEnded };

// The columns of the table, in its order.
enum class SupervisorEvent { kInterrupt, kRequest, kSecond, kSaved, kFinal, kCrash, kLastCrash, kWaited, kHosts, kFew };

// kWait: wait, then probe (BackOff). kReturn…: return 85, the job's exit code, or 5 or 6.
enum class SupervisorAction { kNone, kAsk, kTerm, kKill, kWait, kProbe, kStart, kReturn85, kReturnCode, kReturnCrash };

// The next state, and what the supervisor does now.
struct SupervisorStep {
  SupervisorState state;
  SupervisorAction action = SupervisorAction::kNone;
  bool operator==(const SupervisorStep&) const = default;
};
SupervisorStep Next(SupervisorState state, SupervisorEvent event);

// The end of one start of the job.
struct JobEnd {
  int code = 0;               // of the command; 128 + n if signal n ended it
  bool begun = false;         // rank 0 reported its start (launch/job_report.h), or has claimed the run directory
  bool ended = false;         // a rank reported its end, or rank 0 has given the run directory up
  bool saved = false;         // a rank reported exit code 85, which all ranks agree on
  int failure = 0;            // the least exit code but 0 and 85 that a rank reported; 0: none
  bool elastic = false;       // an elastic job (elastic_job.h)
  bool begun_before = false;  // `begun` was true in an earlier start under this supervisor
  bool growing = false;       // the supervisor's state when the start ended
};
// Returns the exit code that counts: end.code, with two exceptions. If it is 0 or 1, which say little of a job with
// several ranks, end.failure replaces it unless that is 0. A code from 7 to 31 is none of hadal's: MPICH's mpirun
// returns the number n of the signal that ended a rank, and EndCode returns 128 + n, as Open MPI's and shells do.
int EndCode(const JobEnd& end);
// Returns kSaved, kFinal or kCrash.
SupervisorEvent EventOf(const JobEnd& end);

// The longest wait before a start, unless BackOff's `first` is longer.
inline constexpr absl::Duration kLongestBackOff = absl::Minutes(5);
// Returns the wait between a crash and the next start. `fruitless`: starts in a row that saved no newer checkpoint.
// `first`: the wait after the first of them; it doubles with each further one. With fruitless = 0, returns the rest of
// `first` since the last start, which was `since_start` ago, or 0.
absl::Duration BackOff(int fruitless, absl::Duration first, absl::Duration since_start);

}  // namespace hadal
