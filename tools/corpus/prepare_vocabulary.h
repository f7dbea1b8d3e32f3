// The vocabularies of `hadal prepare`: loaded or trained, and saved into the output folder.
#pragma once

#include <iosfwd>

#include "absl/status/statusor.h"
#include "tools/corpus/prepare_corpus.h"

namespace hadal {

struct PreparedVocabularies {
  SavedVocabulary source;
  SavedVocabulary target;  // the same file as the source's where they share it

  bool shared() const { return source.file == target.file; }
};

// Loads what `options` names, or trains on `train`, of which `usable` pairs are usable; then saves. Progress goes to `out`.
// Blocking: training takes seconds to minutes.
// Errors: those of loading, training and saving a vocabulary.
absl::StatusOr<PreparedVocabularies> PrepareVocabularies(const PrepareOptions& options, const Split& train,
                                                         int64_t usable, std::ostream& out);

}  // namespace hadal
