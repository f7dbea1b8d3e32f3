// Sets a model's vocabulary sizes from the prepared corpus that it trains on.
// Thread safety: pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "layers/model_options.h"
#include "runtime/data/corpus_manifest.h"

namespace hadal {

// Sets the model's vocabulary sizes to those of the corpus with this prefix.
// Errors: InvalidArgument if the model shares one embedding between source and target, but the corpus has two
// vocabularies, even of equal size: an id would mean a different piece on each side.
absl::Status SetVocabularies(const CorpusManifest& corpus, const std::string& prefix, ModelOptions& model);

}  // namespace hadal
