// The vocabularies that a corpus was made with, found beside the corpus and compared with its checksums.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

struct CorpusVocabularies {
  Vocabulary source;  // a copy of target if both share one, or if the corpus is monolingual
  Vocabulary target;
};

// Loads both. Errors: those of Vocabulary::Load; FailedPrecondition when a file is not the one that the corpus was made
// with.
absl::StatusOr<CorpusVocabularies> LoadVocabularies(const Corpus& corpus);

}  // namespace hadal
