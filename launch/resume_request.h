// `--resume CHECKPOINT` and `--resume never` are done once a job. A later start of the same job, after a crash or out
// of Slurm's queue, goes on from the newest checkpoint: asked again, it would throw away what the starts before it have
// trained.
//
// Rank 0 keeps a note in RUN/checkpoints/resume_request, of five lines: HADAL_JOB_START, SLURM_JOB_ID, the request, the
// step at which the run went on, and the attempt that had claimed the run directory before. The request is done once
// another attempt has claimed it: later checkpoints are then set aside. A start that ended before that leaves the
// request to the next one.
// The environment tells which job a start belongs to: by HADAL_JOB_START (launch/time_limit.h), which the supervisor
// and launch/hosts/train set, or by SLURM_JOB_ID where SLURM_RESTART_COUNT says that Slurm has started the job before.
// Any other start stands by itself.
// Limitation: rank 0 must see these variables. mpirun gives ranks of other hosts only those that it is told to (-x).
// Threads: any, one a run directory. Blocking: reads and writes files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/task_launcher.h"

namespace hadal {

// The --resume of this start: "auto" where an earlier start of this job has done what is asked for and has saved since,
// else `asked`.
// Errors: FindLatest's, where every checkpoint since is damaged.
absl::StatusOr<std::string> ResumeOfThisStart(const std::string& run_directory, const std::string& asked,
                                              const Environment& environment);

// Notes that this start does what is asked for, and goes on at `step`. Nothing for "auto", and for a start that stands
// by itself.
// REQUIRES: the run directory is not yet claimed.  Errors: those of files.
absl::Status NoteResume(const std::string& run_directory, const std::string& asked, int64_t step,
                        const Environment& environment);

}  // namespace hadal
