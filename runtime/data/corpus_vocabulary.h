// The vocabularies a corpus was made with, found beside it and held to its checksums.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

struct CorpusVocabularies {
  Vocabulary source;  // a copy of the target's where they share one, and where the corpus is monolingual
  Vocabulary target;
};

// Loads both. Errors: those of Vocabulary::Load; FailedPrecondition when a file is not the one the corpus was made with.
absl::StatusOr<CorpusVocabularies> LoadVocabularies(const Corpus& corpus);

}  // namespace hadal
