// A corpus of samples that a test has made up: a real one, written to a directory of its own, opened, and kept after
// the directory is gone.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/corpus.h"

namespace hadal {

// Without vocabulary files. A source vocabulary of 0 ids makes a monolingual corpus.  REQUIRES: token ids are inside
// their vocabularies.
Corpus CorpusOf(const std::vector<Sample>& samples, int32_t source_vocabulary_size, int32_t target_vocabulary_size);

}  // namespace hadal
