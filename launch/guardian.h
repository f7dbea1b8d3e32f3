// A guardian: the process between the supervisor (supervisor.h) and one start of its job. It starts the job, signals
// it, and leaves no process of the job behind when the job, or the supervisor, ends.
//
//   hadal supervise ── guardian (own session, sub-reaper) ── mpirun (own session) ── ranks
//
//   event                           action
//   the supervisor orders           ask: CONT to stopped processes, then USR1; terminate: TERM; kill: KILL to all.
//                                   USR1 and TERM go to the uppermost processes that handle them (SignalHandlers):
//                                   from a job script to its mpirun
//   the job ends                    kills all its descendants, also those of other sessions; exits with the job's code
//   the supervisor ends (SIGKILL)   a pipe closes: TERM to the job, after 10 seconds KILL to all
//   a process is stopped (SIGSTOP)  prints which; after `stopped_limit` kills all and exits 5, as ranks do that wait
//                                   for a stopped peer. A job of one rank has no peer that would notice.
//   the guardian is killed          the job gets TERM (PR_SET_PDEATHSIG); the supervisor, a sub-reaper too, kills all
//   both are killed at once         the job gets TERM; processes that it does not end continue
//
// A terminal's Ctrl-C, and signals to the guardian, have no effect: the supervisor decides.
// Threads: one; the process that starts it must have no other.
#pragma once

#include <sys/types.h>

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/files.h"

namespace hadal {

// The descendants of this process: finds them, signals them, ends them.
//
// A sub-reaper (prctl(PR_SET_CHILD_SUBREAPER)) is the parent of every descendant whose own parent has ended, also of
// one that has created its own session or has become a daemon. A sub-reaper without a child has no descendant.
// Limitations: README.md, "What escapes".
// Threads: one; the process must have no other. Blocking: all functions read /proc; EndDescendants also waits.
struct ProcessEntry {
  pid_t pid = -1;
  pid_t parent = -1;
  char state = '?';  // as in /proc/PID/stat: T stopped, Z ended but not reaped; other letters: it runs or waits
  std::string name;  // at most 15 bytes
};

// Returns all descendants of this process, parents before their children.
std::vector<ProcessEntry> Descendants();

// Sends `signal` to the uppermost descendants that have a handler for it: if a script runs mpirun, to mpirun, which
// passes it on to the ranks. A shell gets the signal only if no other process has a handler, because bash with a trap
// on EXIT has a handler that ends the shell. If no process has a handler, sends the signal to `job`, the process of the
// job's command.
void SignalHandlers(const std::vector<ProcessEntry>& descendants, int signal, pid_t job);

struct DescendantsEnd {
  int killed = 0;  // number of processes killed
  int living = 0;  // number that the kernel keeps, e.g. in a read from a dead file server or a driver
};
// Kills all descendants and waits at most `patience` for their end, because a killed process keeps its memory and locks
// until then. Waits for (reaps) every child that has ended. REQUIRES: this process is a sub-reaper.
DescendantsEnd EndDescendants(absl::Duration patience);

struct GuardedJob {
  std::vector<std::string> command;  // PATH is searched for its first word; if it cannot be run, the exit code is 2
  absl::Duration stopped_limit = absl::Minutes(10);  // see the table
  std::string temporary;  // a directory that the guardian removes if the supervisor is killed; empty: none
};

enum class GuardianOrder : char { kAsk = 'a', kTerminate = 't', kKill = 'k' };

class Guardian {
 public:
  // Starts a guardian and the job. Both write messages to `log`, which must outlive them. The job begins with signals
  // unblocked and in their default disposition.  Errors: Internal (no process or pipe).
  static absl::StatusOr<Guardian> Start(const GuardedJob& job, std::ostream& log);

  void Send(GuardianOrder order);
  // Returns the job's exit code (128 + n if signal n ended it) once the job and all its descendants have ended; nullopt
  // before. Does not block, unless the guardian was killed: then kills the descendants and waits for their end.
  // REQUIRES: no earlier call has returned the code.
  std::optional<int> Poll();

 private:
  Guardian(pid_t pid, FileDescriptor orders, std::ostream& log) : pid_(pid), orders_(std::move(orders)), log_(&log) {}

  pid_t pid_;
  FileDescriptor orders_;  // pipe; the guardian has its read end
  std::ostream* log_;
};

}  // namespace hadal
