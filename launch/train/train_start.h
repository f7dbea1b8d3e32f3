// Decides where a run starts: at step 0, at a checkpoint of its own (--resume), or at step 0 with another run's weights
// (--init-from).
//
// Rank 0 decides; all ranks then load the same files. A later start of the same job does not repeat --resume
// (resume_request.h). If a run's settings have changed since its checkpoint, it continues only if the user accepts the
// difference (--accept-changes), which is offered only where the model still has the checkpoint's parameters.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/train/train_preparation.h"
#include "launch/train/training_sinks.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/trainer.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// The checkpoint to resume from according to --resume; empty: start at step 0. `model`: the parameters of the model
// that `config` describes. Prints the differences that the user has accepted.  Blocking: reads manifests.
// Errors: InvalidArgument, with the fields, if settings have changed, or where a checkpoint to resume and another
// to begin from are named; those of FindLatest, and of reading a checkpoint
// that was named.
absl::StatusOr<std::string> FindResume(const TrainArguments& arguments, const config::RunConfig& config,
                                       const std::vector<CheckpointParameter>& model, TrainingSinks& sinks);

// Agrees on the start, loads it into `trainer`, and notes a --resume that a later start of the job must not repeat.
// Blocking: all ranks call it together.
// Errors: rank 0's of FindResume, of CheckVocabularies (tools/checkpoint/checkpoint_vocabularies.h), of looking for
// --init-from and of the note, on all ranks; InvalidArgument, likewise, if the checkpoint is of another model;
// AgreeOnCheckpoint's; those of loading and of Communicator::Wait.
absl::Status BeginRun(const TrainArguments& arguments, const PreparedRun& run, int rank, Collectives& collectives,
                      TrainingSinks& sinks, Trainer& trainer);

}  // namespace hadal
