// The two passes of `hadal prepare` over the text of one split: check every line, then encode the usable ones.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/vocabulary.h"
#include "tools/corpus/cleaning_report.h"
#include "tools/corpus/prepare.h"
#include "tools/corpus/repeated_text.h"

namespace hadal {

// train, valid or test.
struct Split {
  std::string name;
  std::vector<TextPair> pairs;
  bool training = false;  // filters apply

  // The file that stands for the split in messages.
  const std::string& first_file() const { return pairs[0].source.empty() ? pairs[0].target : pairs[0].source; }
};

// Checks that the files can be opened and are files: the text is read several times. Errors: those of OpenFile.
absl::Status CheckReadable(const Split& split);

// The results of the first pass.
struct SplitSurvey {
  int64_t lines = 0;
  std::vector<TextFindings> texts;  // [pairs]; `kept`: of what can be known without tokens
  std::vector<bool> dropped;        // [≤ lines] of the filters that need no tokens; the rest: none
  int64_t byte_order_marks = 0;
  int64_t carriage_returns = 0;
  int64_t more_columns = 0;  // lines

  std::vector<int64_t> usable() const;  // [pairs] kept
};

// Reads all text of the split once. `held_out`: HashOfPair of validation and test text; other splits than training
// text add theirs.
// Errors: bad lines that `options` treat as errors, with file and line; unequal line counts; CheckSkipped's.
absl::StatusOr<SplitSurvey> SurveySplit(const Split& split, const PrepareOptions& options, TextHashes& held_out);

// Usable pairs of lines of a split, as two lists.
struct SampledText {
  std::vector<std::string> source;  // empty for plain text
  std::vector<std::string> target;
};
// Takes counts[i] of the usable pairs of text i, spread evenly; where counts[i] is larger, some repeatedly.
absl::StatusOr<SampledText> SampleText(const Split& split, const PrepareOptions& options, const SplitSurvey& survey,
                                       const std::vector<int64_t>& counts);

struct WrittenSplit {
  CorpusManifest manifest;
  std::vector<TextFindings> texts;  // [pairs]
};

// A vocabulary and the file it was saved to, in the output folder.
struct SavedVocabulary {
  Vocabulary vocabulary;
  std::string file;

  VocabularyReference reference() const { return {file, vocabulary.size(), vocabulary.crc32c()}; }
};

// Encodes the split into DIR/NAME.json and its shards. A sample's corpus_id is an index into split.pairs. `source` is
// not read for plain text.
// Errors: as SurveySplit; over-long sides if they are errors; those of writing.
absl::StatusOr<WrittenSplit> WriteSplit(const Split& split, const PrepareOptions& options, const SplitSurvey& survey,
                                        const SavedVocabulary& source, const SavedVocabulary& target);

}  // namespace hadal
