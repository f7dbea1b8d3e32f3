// Chooses and loads what a run starts from: a checkpoint of its own (--resume), the weights of another run
// (--init-from), or nothing. LoadInitialState does that on all ranks: rank 0 chooses a checkpoint and broadcasts its
// manifest; each rank loads and verifies its part. Damage may be found only while loading; all ranks then try the next
// older checkpoint.
//
// `--resume CHECKPOINT`, `--resume never` and `--reset` (the request) are applied only once per job. Later attempts
// (starts) of the same job, after a crash or a requeue by Slurm, resume from the newest checkpoint; if they applied the
// request again, they would discard the progress of earlier attempts.
//
// Rank 0 stores the request in RUN/checkpoints/resume_request, in four lines: HADAL_JOB_START, SLURM_JOB_ID, the values
// of --resume and --reset (TrainArguments::StartRequest), and the step at which training continued. It does so after it
// has claimed the run directory and set later checkpoints aside, so any newer checkpoint was saved after the request
// was applied. If an attempt ends before that, the next one applies the request.
// Two attempts belong to the same job if they have the same HADAL_JOB_START (launch/time_limit.h; set by the
// supervisor and launch/hosts/train), or the same SLURM_JOB_ID with SLURM_RESTART_COUNT > 0. Any other attempt is a new
// job.
// Limitation: rank 0 needs these variables in its environment. mpirun forwards only those named with -x to other hosts.
// Threads: any; only one call at a time for a run directory. Blocking: reads and writes files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/task_launcher.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/trainer.h"
#include "tools/train/training_sinks.h"

namespace hadal {

// Returns the step at which an earlier attempt of this job has applied the request `asked`; -1 if none has.
int64_t AppliedStep(const std::string& run_directory, const std::string& asked, const Environment& environment);

// Returns the effective request of this attempt: "auto" if an earlier attempt of this job has applied the request and
// has saved a checkpoint since, else `asked`.
// Errors: those of FindLatest, if every checkpoint is damaged.
absl::StatusOr<std::string> ResumeOfThisAttempt(const std::string& run_directory, const std::string& asked,
                                                const Environment& environment);

// Returns batch.sum_groups of the checkpoint from which a start with `resume` (auto, never, or a path) continues; 0 if
// an older hadal has added in another order; nullopt without a checkpoint that can be read. `copies`: the run copies
// its state to memory, so that without a checkpoint its resolved config counts.
std::optional<int32_t> SumGroupsBefore(const std::string& run_directory, const std::string& resume, bool copies);

// Rank 0: returns batch.sum_groups of the config if it is not 0. Otherwise returns that of the checkpoint to resume
// from, if it can be read and allows this number of replicas (MayDivide, pipeline/layout/sum_tree.h); else the number
// of replicas. `request`: the result of ResumeOfThisAttempt.
int32_t SumGroupsOf(const TrainArguments& arguments, const std::string& request, const TrainOptions& options);

// Stores the request `asked` of this attempt, which continues at `step`. Does nothing for "auto", or if neither
// HADAL_JOB_START nor SLURM_JOB_ID is set.
// REQUIRES: this attempt has claimed the run directory.  Errors: file errors.
absl::Status NoteResume(const std::string& run_directory, const std::string& asked, int64_t step,
                        const Environment& environment);

// Rank 0: returns the checkpoint to resume from: the newest before `before_step`, or the one that `resume` names. If
// settings have changed since, returns an error without --accept-changes; with it, prints the differences. The error's
// message suggests that option only if the run's parameters, `model`, are still those of the checkpoint.
// Errors: NotFound if "auto" finds no checkpoint; InvalidArgument, with the fields, if settings have changed, or if
// both --resume CHECKPOINT and --init-from are given; those of FindLatest and of reading a named checkpoint.
absl::StatusOr<FoundCheckpoint> ChooseResume(const TrainArguments& arguments, const std::string& resume,
                                             int64_t before_step, const config::RunConfig& config,
                                             const std::vector<CheckpointParameter>& model, TrainingSinks& sinks);

// Loads the initial state into `trainer`: a checkpoint of this run (--resume) or another run's weights (--init-from);
// otherwise leaves it at step 0. `request`, `applied_step`: the results of ResumeOfThisAttempt and AppliedStep on
// rank 0. Blocking: all ranks call it.
// Errors: on all ranks those of ChooseResume on rank 0, and InvalidArgument if model, vocabularies, tags or features
// differ from the checkpoint's, if a run resumes with another training corpus without --reset data, or if --init-from
// is of --run-dir itself; errors of loading and of Communicator::Wait.
absl::Status LoadInitialState(const TrainArguments& arguments, const std::string& request, int64_t applied_step,
                              const PreparedRun& run, int rank, TrainingSinks& sinks, Trainer& trainer);

}  // namespace hadal
