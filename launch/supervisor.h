// Runs a job (mpirun … hadal train …, or a script that runs it) and restarts it after a crash.
//
//   INT, TERM, HUP, USR1 or USR2        the job saves and exits 85; a second INT: TERM to it; a third: KILL. While no
//                                       job runs: returns 85
//   the job exits 85, or a rank         returns 85
//   reports 85
//   a crash: the job exits 5, 6, 7 to   restarts the job: at once if it has saved a newer checkpoint, else after a wait
//   30 or ≥ 128; or rank 0 began, and   that doubles from crash to crash. After `tries` crashes in a row without a
//   no rank reports an end              newer checkpoint, or if a signal has asked the job to end, restarts nothing
//                                       and returns 5 if the job exited 5, else 6
//   the job exits otherwise             returns that code
//
// launch/supervisor_state.h has the whole table of states and events. A newer checkpoint is one beyond the furthest
// step saved so far under this supervisor. Rank 0 reports its run directory and its checkpoints (job_report.h), also
// from within a job script. Of a rank 0 on another host, where the report's file does not exist, checkpoints/latest,
// metrics.jsonl and the owner's record (run_owner.h) of the command's --run-dir are read.
// mpirun alone turns Ctrl-C into a TERM that gives ranks two seconds, returns 137 for a killed rank, and may leave
// ranks behind when it is killed. A guardian (guardian.h) runs each start in a session of its own and leaves no process
// of it, even if the supervisor is killed. Limitation: the guardian acts on this host only. On other hosts Open MPI's
// daemons end the ranks; they detect a lost host by TCP keepalive (11 seconds, unless the environment sets it).
// An elastic job (elastic_job.h) is started on the hosts that answer, with the planner's layout for them. If after a
// crash other hosts answer than before, it starts again at once, and no try is used up; but after twice
// as many such starts in a row as there are hosts, without a newer checkpoint, it is a crash as on the same hosts.
// While hosts are missing they are probed; if with those that answer it is faster, the job saves (USR1) and starts
// again on more. Too few hosts: waits, and probes again.
// A closed terminal (HUP) saves and ends the run, because a user who logs out without nohup expects that; under nohup
// it continues. The supervisor continues if the reader of its output ends (`… | head`).
// Threads: one, and no other may run in the process. Blocking until the job has ended.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launch/elastic_job.h"

namespace hadal {

struct SupervisorOptions {
  std::vector<std::string> command;            // the job; PATH is searched for its first word
  int tries = 3;                               // after so many crashes in a row without a newer checkpoint it gives up
  absl::Duration back_off = absl::Seconds(1);  // wait after the first of these crashes; ≥ 0
  absl::Duration stopped_limit = absl::Minutes(10);  // a process stopped that long (SIGSTOP) counts as a hang; > 0
  std::optional<ElasticOptions> elastic;
};

// Runs the job to its end and returns the exit code by the table above. Writes a line to `log` for each restart.
// Errors: InvalidArgument (no command, or --resume never, with which a restart would begin from step 0); Internal (no
// process can be created); those of ElasticJob::Prepare.
absl::StatusOr<int> Supervise(const SupervisorOptions& options, std::ostream& log);

}  // namespace hadal
