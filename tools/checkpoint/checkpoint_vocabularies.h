// Whether a checkpoint's ids are the corpus's: a corpus that was prepared anew has a vocabulary of its own, most often
// of the same size, and a model would go on with embeddings of other pieces.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/data/corpus.h"

namespace hadal {

// Compares the vocabularies that the checkpoint carries with the corpus's: by their checksums, and where these differ
// piece by piece. A checkpoint without vocabularies is taken as it is.
// Blocking: reads the manifest, and vocabularies that differ.
// Errors: InvalidArgument where an id means two pieces; those of reading.
absl::Status CheckVocabularies(const std::string& checkpoint, const Corpus& corpus);

}  // namespace hadal
