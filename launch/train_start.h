// Where a run begins: at step 0, at a checkpoint of its own (--resume), or at step 0 with another run's weights
// (--init-from).
//
// Rank 0 looks and decides; all ranks then load the same files. A later start of the same job does not go back once
// more to what --resume names (resume_request.h). A run whose settings have changed since its checkpoint is continued
// only where the user accepts the difference (--accept-changes).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/train_preparation.h"
#include "launch/training_sinks.h"
#include "pipeline/trainer.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// The checkpoint that --resume asks for, empty: start at step 0. Tells what the user has accepted.  Blocking: reads
// manifests.
// Errors: InvalidArgument, with the fields, where settings have changed; those of FindLatest, and of reading a
// checkpoint that was named.
absl::StatusOr<std::string> FindResume(const TrainArguments& arguments, const config::RunConfig& config,
                                       TrainingSinks& sinks);

// Agrees on where to begin, loads it into `trainer`, and notes a --resume that a later start of the job is not to do
// again.  Blocking: all ranks call it together.
// Errors: FindResume's, CheckVocabularies' (checkpoint_vocabularies.h), those of looking for --init-from and of the
// note, of rank 0 on all ranks; AgreeOnCheckpoint's; those of loading and of transfers.
absl::Status BeginRun(const TrainArguments& arguments, const PreparedRun& run, int rank, Collectives& collectives,
                      TrainingSinks& sinks, Trainer& trainer);

}  // namespace hadal
