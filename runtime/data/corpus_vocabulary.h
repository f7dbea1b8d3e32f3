// Loads the vocabularies of a corpus from the files beside it, and compares their checksums with the corpus's.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

struct CorpusVocabularies {
  Vocabulary source;  // a copy of target if both sides share one, or if the corpus is monolingual
  Vocabulary target;
};

// Errors: DataLoss if a file is missing, damaged, or not the one that the corpus was made with.
absl::StatusOr<CorpusVocabularies> LoadVocabularies(const Corpus& corpus);

}  // namespace hadal
