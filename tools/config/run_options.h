// From the config a person wrote (configs/run.proto) to the plain option structs the trainer and the planner read.
//
// The model is model_config.h's; fractions of the run become updates (rounded, at least 1); what fields mean together
// is checked. Vocabulary sizes stay 0: they come from the prepared corpus.
// Thread safety: pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "configs/run.pb.h"
#include "pipeline/decode/beam_search.h"
#include "pipeline/plan/train_options.h"

namespace hadal {

struct RunOptions {
  TrainOptions train;                 // run_directory is left empty
  std::vector<std::string> warnings;  // what is allowed but seldom meant, one sentence each
};

// Beam search as a config has it: for BLEU within a run, and for `hadal translate` with a checkpoint of it.
BeamOptions MakeBeamOptions(const config::Decode& decode);

// Errors: InvalidArgument with field, value and what is allowed.
absl::StatusOr<RunOptions> MakeRunOptions(const config::RunConfig& config);

// What only a training run needs, and a plan does not: a corpus, a limit, a validation corpus where something depends
// on it.
// Errors: InvalidArgument with the field to set.
absl::Status CheckTrainable(const TrainOptions& options);

}  // namespace hadal
