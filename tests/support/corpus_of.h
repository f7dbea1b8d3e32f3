// Makes a real corpus of a test's own samples: written to a temporary directory and opened; it stays valid after the
// directory is deleted.
#pragma once

#include "runtime/data/corpus.h"

namespace hadal {

// The corpus has no vocabulary files; corpora 0, 1, … are called so. A source vocabulary of 0 ids makes it
// monolingual, or of speech where the samples have frames.
// REQUIRES: token ids are inside their vocabularies.
Corpus CorpusOf(const std::vector<Sample>& samples, int32_t source_vocabulary_size, int32_t target_vocabulary_size);

}  // namespace hadal
