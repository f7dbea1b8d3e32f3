// The vocabularies of `hadal prepare`: loads or trains them, and saves them in the output folder.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "tools/corpus/prepare_corpus.h"

namespace hadal {

struct PreparedVocabularies {
  SavedVocabulary source;
  SavedVocabulary target;  // the source's file if they share one

  bool shared() const { return source.file == target.file; }
};

// Loads the existing vocabularies that `options` names; returns nullopt if they are to be trained.
// Errors: those of loading; invalid training options.
absl::StatusOr<std::optional<CorpusVocabularies>> GivenVocabularies(const PrepareOptions& options);

// Trains vocabularies on `train`, of which `survey` is the first pass. Writes progress to `out`.
// Blocking: takes seconds to minutes.
// Errors: those of training a vocabulary.
absl::StatusOr<CorpusVocabularies> TrainVocabularies(const PrepareOptions& options, const Split& train,
                                                     const SplitSurvey& survey, std::ostream& out);

// Checks the languages of texts that get tags.
// Errors: InvalidArgument if those of a text are not known, or one is of no training text: its tag would be untrained.
absl::Status CheckLanguages(const std::vector<Split>& splits);

// Adds the tags of the languages of all splits' texts to vocabularies, sorted by their codes. REQUIRES: CheckLanguages.
// Errors: AddLanguageTags'.
absl::Status AddTagsOf(const std::vector<Split>& splits, CorpusVocabularies& vocabularies);

// Writes a warning to `out` if a training text has many targets that a vocabulary trained on it cannot spell: its
// normalization (NFKC by default) changes their characters. Errors: those of reading.
absl::Status WarnOfRewriting(const Split& train, const Vocabulary& target, std::ostream& out);

// Saves them in `directory`; identical vocabularies are saved as one file.
absl::StatusOr<PreparedVocabularies> SaveVocabularies(CorpusVocabularies vocabularies, const std::string& directory);

}  // namespace hadal
