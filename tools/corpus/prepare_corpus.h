// The two passes of `hadal prepare` over one split's text: look at every line, then encode what is kept.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/vocabulary.h"
#include "tools/corpus/prepare.h"
#include "tools/corpus/skipped_lines.h"

namespace hadal {

// train, valid or test.
struct Split {
  std::string name;
  std::vector<TextPair> pairs;

  // What messages call its text by.
  const std::string& first_file() const { return pairs[0].source.empty() ? pairs[0].target : pairs[0].source; }
};

// Errors: those of opening its files; reads nothing.
absl::Status CheckReadable(const Split& split);

// What the first pass saw.
struct SplitSurvey {
  int64_t lines = 0;
  int64_t usable = 0;  // valid and not blank
  int64_t byte_order_marks = 0;
  int64_t carriage_returns = 0;
};

// Reads all text of the split once.
// Errors: bad lines that `options` makes an error, with file and line; unequal line counts; CheckSkipped's.
absl::StatusOr<SplitSurvey> SurveySplit(const Split& split, const PrepareOptions& options);

// Every `stride`-th usable pair of lines of the split, as two lists.
struct SampledText {
  std::vector<std::string> source;  // empty for plain text
  std::vector<std::string> target;
};
absl::StatusOr<SampledText> SampleText(const Split& split, const PrepareOptions& options, int64_t stride);

struct WrittenSplit {
  CorpusManifest manifest;
  int64_t lines = 0;  // read
  SkippedLines skipped;
};

// A vocabulary and the file it was saved to, in the output folder.
struct SavedVocabulary {
  Vocabulary vocabulary;
  std::string file;

  VocabularyReference reference() const { return {file, vocabulary.size(), vocabulary.crc32c()}; }
};

// Encodes the split into DIR/NAME.json and its shards. A sample's corpus id counts split.pairs. Of plain text `source`
// is not read.
// Errors: as SurveySplit, over-long sides where they are an error, and those of writing.
absl::StatusOr<WrittenSplit> WriteSplit(const Split& split, const PrepareOptions& options,
                                        const SavedVocabulary& source, const SavedVocabulary& target);

}  // namespace hadal
