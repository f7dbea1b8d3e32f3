// Applies `--resume CHECKPOINT` and `--resume never` only once per job. Later attempts of the same job, after a crash
// or a requeue by Slurm, resume from the newest checkpoint; applying the option again would discard the progress of
// earlier attempts.
//
// Rank 0 stores the request in RUN/checkpoints/resume_request, in four lines: HADAL_JOB_START, SLURM_JOB_ID, the value
// of --resume, and the step at which training continued. It does so when the claim of the run directory has set later
// checkpoints aside, so any newer one was saved after the request was applied. If an attempt ends before that, the next
// one applies the request.
// Two attempts belong to the same job if they have the same HADAL_JOB_START (launch/time_limit.h; set by the
// supervisor and launch/hosts/train), or the same SLURM_JOB_ID with SLURM_RESTART_COUNT > 0. Any other attempt is a new
// job.
// Limitation: rank 0 needs these variables in its environment. mpirun forwards only those named with -x to other hosts.
// Threads: any; only one call at a time for a run directory. Blocking: reads and writes files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/task_launcher.h"

namespace hadal {

// Returns the effective --resume of this attempt: "auto" if an earlier attempt of this job has applied the request and
// has saved a checkpoint since, else `asked`.
// Errors: those of FindLatest, if every checkpoint is damaged.
absl::StatusOr<std::string> ResumeOfThisAttempt(const std::string& run_directory, const std::string& asked,
                                                const Environment& environment);

// Stores the request `asked` of this attempt, which continues at `step`. Does nothing for "auto", or if neither
// HADAL_JOB_START nor SLURM_JOB_ID is set.
// REQUIRES: this attempt has claimed the run directory.  Errors: file errors.
absl::Status NoteResume(const std::string& run_directory, const std::string& asked, int64_t step,
                        const Environment& environment);

}  // namespace hadal
