// Sets what of a run's options follows from the prepared corpus that it trains on.
// Thread safety: pure.
#pragma once

#include "absl/status/status.h"
#include "pipeline/options/train_options.h"
#include "runtime/data/corpus_manifest.h"

namespace hadal {

// Sets the model's vocabulary sizes and the width of its frames to those of the corpus, and whether validation's
// translations begin with a forced language tag.
// Errors: InvalidArgument if the model shares one embedding between source and target, but the corpus has two
// vocabularies, even of equal size: an id would mean a different piece on each side; or if model.frame_width is set and
// is not the corpus's.
absl::Status FollowCorpus(const CorpusManifest& corpus, TrainOptions& options);

}  // namespace hadal
