// The supervisor's states, and what each event does in them: a pure function. launch/supervisor.cc turns signals,
// time and the job's end into events, and carries out the actions.
//
//   state        INT, TERM            USR1, HUP     a second  saved    final   crash        last crash  wait over
//   running      → ordered: ask       → asked: ask  –         ends 85  ends c  backing off  ends 5, 6   –
//   asked        → ordered: ask       ask           ask       ends 85  ends c  ends 5, 6    ends 5, 6   –
//   ordered      → terminating: TERM  ask           ask       ends 85  ends c  ends 5, 6    ends 5, 6   –
//   terminating  → killing: KILL      TERM          TERM      ends 85  ends c  ends 5, 6    ends 5, 6   –
//   killing      KILL                 KILL          KILL      ends 85  ends c  ends 5, 6    ends 5, 6   –
//   backing off  ends 85              ends 85       –         –        –       –            –           → running
//   ended        –                    –             –         –        –       –            –           –
//
//   ask         USR1 to the job, which saves and exits 85; repeated each second, since a job that is still starting
//               does not listen yet. Only INT and TERM escalate: a closed terminal sends HUP twice, and Slurm sends
//               USR1 and then TERM.
//   a second    a second has passed
//   saved       the job's exit code is 85; or rank 0 reported 85 and the launcher returned something else (mpirun: 1,
//               if TERM is sent to mpirun itself); or USR1 ended the job before rank 0 had begun: nothing to save
//   crash       the exit code is 5 (a rank hung), 6 or ≥ 128 (a rank or the launcher was lost); or it is 1, rank 0 had
//               begun, and no rank reported an end: a launcher that got TERM ended the ranks before they could save
//   last crash  a crash, and all tries are used up
//   final       any other end: a restart would not change it
//   ends c      returns the job's exit code;  ends 5, 6: returns 5 if the job's exit code was 5, else 6
//   –           no effect; while backing off and after the end there is no job
// Thread safety: pure functions.
#pragma once

#include "absl/time/time.h"

namespace hadal {

enum class SupervisorState { kRunning, kAsked, kOrdered, kTerminating, kKilling, kBackingOff, kEnded };

// The columns of the table, in its order.
enum class SupervisorEvent { kOrder, kRequest, kSecond, kSaved, kFinal, kCrash, kLastCrash, kWaitOver };

enum class SupervisorAction { kNone, kAsk, kTerminate, kKill, kWait, kStart, kReturnSaved, kReturnCode, kReturnCrash };

struct SupervisorStep {
  SupervisorState state;
  SupervisorAction action = SupervisorAction::kNone;
  bool operator==(const SupervisorStep&) const = default;
};
SupervisorStep Next(SupervisorState state, SupervisorEvent event);

// Converts the exit code of a command. MPICH's mpirun returns the bare number n of the signal that ended a rank; 7 to
// 30 become 128 + n, as Open MPI's mpirun and shells return it (1 to 6 are hadal's own exit codes).
int FromLauncher(int code);

// The end of one start of the job.
struct JobEnd {
  int code = 0;        // of FromLauncher; 128 + n if signal n ended the command
  bool begun = false;  // rank 0 reported its start (launch/job_report.h)
  bool ended = false;  // a rank reported its end
  bool saved = false;  // a rank reported exit code 85, which all ranks agree on
};
// Returns kSaved, kFinal, kCrash or, if `last`, kLastCrash.
SupervisorEvent EventOf(const JobEnd& end, bool last);

// The longest wait before a start, unless BackOff's `first` is longer.
inline constexpr absl::Duration kLongestBackOff = absl::Minutes(5);
// Returns the wait between a crash and the next start. `fruitless`: starts in a row without a newer checkpoint; `first`
// is the wait after the first of them and doubles with each further one. After a start with a newer checkpoint, starts
// are only kept `first` apart; the last one was `since_start` ago.
absl::Duration BackOff(int fruitless, absl::Duration first, absl::Duration since_start);

}  // namespace hadal
