// Runs a job (mpirun … hadal train …) as a child, forwards signals to it, restarts it after a crash and leaves no
// process behind.
//
//   event                             action
//   INT, TERM, HUP or USR1            sends USR1 to the job, once a second until it ends: it saves and exits 85
//   a second INT or TERM              sends TERM to the job; a third: KILL
//   the job exits 0 1 2 3 4 85        returns that code
//   the job exits 5                   a rank hung: restarts the job
//   the job exits 6 or ≥ 128          a rank or the launcher was lost (mpirun returns 137 or 205): restarts the job
//   it crashes `tries` times in a row without a newer checkpoint, or after it was asked to stop: returns 5 or 6
//
// mpirun alone turns Ctrl-C into a TERM that gives ranks two seconds, returns 137 for a killed rank, and may leave
// ranks behind when it is killed. The job therefore runs in its own session: a terminal's Ctrl-C reaches only the
// supervisor. When the job has ended, the rest of its session is killed by pid before the next start. When the
// supervisor dies, the job gets TERM. Limitation: kills processes on this host only; on others Open MPI's daemons do
// so, which detect a lost host by TCP keepalive (set to 11 seconds here unless the environment sets it).
// Threads: one, and no other may run in the process. Blocking until the job has ended.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

struct SupervisorOptions {
  std::vector<std::string> command;  // the job; PATH is searched for its first word
  int tries = 3;                     // most starts in a row without a newer checkpoint
};

// Runs the job to its end and returns the exit code as above. Writes a line to `log` for each restart. Reads the run
// directory, whose checkpoints/latest shows progress, from the command's own --run-dir.
// Errors: InvalidArgument (no command, or --resume never, with which a restart would begin from step 0); Internal (no
// process).
absl::StatusOr<int> Supervise(const SupervisorOptions& options, std::ostream& log);

}  // namespace hadal
