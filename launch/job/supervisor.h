// The supervisor: runs a job (mpirun … hadal train …) as a child, turns signals into what the job can use, starts it
// again after a crash and leaves no process behind.
//
//   what comes                        what the supervisor does
//   INT, TERM, HUP or USR1            USR1 to the job, once a second until it ends: it saves and exits 85
//   a second of INT and TERM          TERM to the job; a third: KILL
//   the job exits 0 1 2 3 4 85        returns that
//   the job exits 5                   a rank hung: starts the job again
//   the job exits 6 or ≥ 128          a rank or the launcher was lost (mpirun says 137 or 205): starts the job again
//   it crashes `tries` times in a row without a newer checkpoint, or after it was asked to stop: returns 5 or 6
//
// Why it exists: mpirun turns Ctrl-C into a TERM that leaves ranks two seconds, returns 137 for a killed rank, and may
// leave ranks behind when it is killed itself. The job runs in a session of its own, so that a terminal's Ctrl-C
// reaches the supervisor only; when the job has ended, what is left of its session is killed by pid, and a next start
// waits until it has gone. When the supervisor dies the job gets TERM. Limitations: ends left-overs of this host only;
// on others Open MPI's daemons do, which find a lost host by TCP keepalive (set here to 11 seconds unless the
// environment says otherwise).
// Threads: one, and no other may run in the process. Blocking until the job has ended.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

struct SupervisorOptions {
  std::vector<std::string> command;  // the job; its first word is looked up in PATH
  int tries = 3;                     // starts in a row that bring no newer checkpoint
};

// Runs the job to its end and returns the exit code as above. `log` gets a line for each restart. The run directory,
// whose checkpoints/latest tells progress, is read off the command's own --run-dir.
// Errors: InvalidArgument (no command; one that says --resume never, so that a restart would start over); Internal (no
// process).
absl::StatusOr<int> Supervise(const SupervisorOptions& options, std::ostream& log);

}  // namespace hadal
