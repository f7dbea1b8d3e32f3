// The vocabularies of `hadal prepare`: loaded or trained, and saved into the output folder.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/data/corpus_vocabulary.h"
#include "tools/corpus/prepare_corpus.h"

namespace hadal {

struct PreparedVocabularies {
  SavedVocabulary source;
  SavedVocabulary target;  // the same file as the source's where they share it

  bool shared() const { return source.file == target.file; }
};

// The existing vocabularies that `options` names; none where they are to be trained.
// Errors: those of loading them; of options that no vocabulary could be trained with.
absl::StatusOr<std::optional<CorpusVocabularies>> GivenVocabularies(const PrepareOptions& options);

// Vocabularies trained on `train`, of which `usable` pairs are usable. Progress goes to `out`.
// Blocking: training takes seconds to minutes.
// Errors: those of training a vocabulary.
absl::StatusOr<CorpusVocabularies> TrainVocabularies(const PrepareOptions& options, const Split& train, int64_t usable,
                                                     std::ostream& out);

// Saves them into `directory`, as one where they are the same.
absl::StatusOr<PreparedVocabularies> SaveVocabularies(CorpusVocabularies vocabularies, const std::string& directory);

}  // namespace hadal
