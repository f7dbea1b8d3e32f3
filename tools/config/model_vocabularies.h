// The vocabularies of a prepared corpus and the model that trains on it.
// Thread safety: pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "layers/model_options.h"
#include "runtime/data/corpus_manifest.h"

namespace hadal {

// Sets the model's vocabulary sizes, which are those of the corpus of this prefix.
// Errors: InvalidArgument where the model has one embedding for source and target, and the corpus two vocabularies: of
// one size or not, an id is another piece on either side.
absl::Status SetVocabularies(const CorpusManifest& corpus, const std::string& prefix, ModelOptions& model);

}  // namespace hadal
