// Converts a config (configs/run.proto) to the plain option structs that the trainer and the planner use.
//
// Reads the model with model_config.h, converts fractions of the run to updates (rounded, at least 1), and checks rules
// between fields. Vocabulary sizes stay 0: they come from the prepared corpus.
// Thread safety: pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "configs/run.pb.h"
#include "pipeline/options/train_options.h"
#include "runtime/data/corpus_manifest.h"

namespace hadal {

struct RunOptions {
  TrainOptions train;                 // run_directory is left empty
  std::vector<std::string> warnings;  // settings that are allowed but rarely intended, one sentence each
};

// The beam search options of a config: for BLEU during a run, and for `hadal translate` with a checkpoint of the run.
BeamOptions MakeBeamOptions(const config::Decode& decode);

// Converts a config. Errors: InvalidArgument with field, value and what is allowed.
absl::StatusOr<RunOptions> MakeRunOptions(const config::RunConfig& config);

// Checks that each field that has no effect because of other fields has its default; for example, optimizer.muon has
// no effect with Adam. MakeRunOptions does not check this, because configs of older runs may have such fields.
// Errors: InvalidArgument with the field, its value and the other field.
absl::Status CheckFieldsWithEffect(const config::RunConfig& config);

// Checks what a training run needs and a plan does not: a corpus, a stop limit, and a validation corpus if another
// setting depends on it.
// Errors: InvalidArgument with the field to set.
absl::Status CheckTrainable(const TrainOptions& options);

// Sets in `options` what the prepared training corpus determines: the model's vocabulary sizes, the width of its
// frames, and whether validation's translations begin with a forced language tag.
// Errors: InvalidArgument if the model shares one embedding between source and target, but the corpus has two
// vocabularies, even of equal size: an id would mean a different piece on each side; or if model.frame_width is set and
// is not the corpus's.
absl::Status FollowCorpus(const CorpusManifest& corpus, TrainOptions& options);

}  // namespace hadal
