// Makes `--resume CHECKPOINT` and `--resume never` act once per job. A later start of the same job, after a crash or
// from Slurm's queue, continues from the newest checkpoint; repeating the request would discard what earlier starts
// have trained.
//
// Rank 0 keeps a note in RUN/checkpoints/resume_request, of five lines: HADAL_JOB_START, SLURM_JOB_ID, the request, the
// step at which the run continued, and the attempt that had claimed the run directory before. The request is done once
// another attempt has claimed the directory, because later checkpoints are then set aside. A start that ends before
// that leaves the request to the next one.
// A start belongs to the same job if HADAL_JOB_START is the same (launch/job/time_limit.h; the supervisor and
// launch/hosts/train set it), or if SLURM_JOB_ID is the same and SLURM_RESTART_COUNT says that Slurm has started the
// job before. Any other start is a job of its own.
// Limitation: rank 0 must see these variables. mpirun passes only those given with -x to ranks on other hosts.
// Threads: any, but one per run directory. Blocking: reads and writes files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/job/task_launcher.h"

namespace hadal {

// The --resume that applies to this start: "auto" if an earlier start of this job has done the request and has saved
// since, else `asked`.
// Errors: those of FindLatest, if every checkpoint since is damaged.
absl::StatusOr<std::string> ResumeOfThisStart(const std::string& run_directory, const std::string& asked,
                                              const Environment& environment);

// Writes the note: this start executes the request and continues at `step`. Does nothing for "auto", or if neither
// HADAL_JOB_START nor SLURM_JOB_ID is set.
// REQUIRES: this start has not claimed the run directory yet.  Errors: file errors.
absl::Status NoteResume(const std::string& run_directory, const std::string& asked, int64_t step,
                        const Environment& environment);

}  // namespace hadal
