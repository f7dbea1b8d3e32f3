// Checks that a checkpoint and a corpus use the same vocabularies. A corpus that was prepared again usually has another
// vocabulary of the same size, so that the model would use a piece's embedding for another piece.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_manifest.h"

namespace hadal {

// Compares the vocabularies stored in the checkpoint with `vocabularies`, the corpus's: by checksum and, if these
// differ, piece by piece. Accepts a checkpoint without vocabularies. `growth`: null if every id must mean the same
// piece; else the checkpoint's tokens may have other ids, and it receives a notice of that (vocabulary_growth.h).
// `*growth` is unchanged if nothing differs. Blocking: reads vocabularies that differ.
// Errors: InvalidArgument if an id means two different pieces (without `growth`), or the corpus lacks a token of the
// checkpoint (with it); those of reading.
absl::Status CheckVocabularies(const FoundCheckpoint& checkpoint, const CorpusManifest& corpus,
                               const CorpusVocabularies& vocabularies, std::string* growth = nullptr);

}  // namespace hadal
