// Checks that a checkpoint and a corpus use the same vocabularies. A corpus that was prepared again usually has another
// vocabulary of the same size; the model would continue with the embeddings of other pieces.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/data/corpus.h"

namespace hadal {

// Compares the vocabularies stored in the checkpoint with the corpus's: by checksum and, if these differ, piece by
// piece. Accepts a checkpoint without vocabularies.
// Blocking: reads the manifest, and vocabularies that differ.
// Errors: InvalidArgument if an id means two different pieces; those of reading.
absl::Status CheckVocabularies(const std::string& checkpoint, const Corpus& corpus);

}  // namespace hadal
