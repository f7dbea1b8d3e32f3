// The two passes of `hadal prepare` over the text of one split: check every line, then encode the usable ones.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
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

  // The file that stands for the split in messages.
  const std::string& first_file() const { return pairs[0].source.empty() ? pairs[0].target : pairs[0].source; }
};

// Checks that the files can be opened and are files: the text is read several times. Errors: those of OpenFile.
absl::Status CheckReadable(const Split& split);

// The results of the first pass.
struct SplitSurvey {
  int64_t lines = 0;
  int64_t usable = 0;              // valid and not blank
  std::vector<int64_t> usable_of;  // [pairs] of each text
  int64_t byte_order_marks = 0;
  int64_t carriage_returns = 0;
  int64_t equal_sides = 0;  // usable pairs whose source is their target
  int64_t held_out = 0;     // usable pairs that are in `held_out` of SurveySplit
};

// Hashes of pairs of lines, at most kMostHeldOut: which pairs of the training text are also for validation or test.
using PairHashes = std::unordered_set<size_t>;
inline constexpr size_t kMostHeldOut = 1'000'000;

// Reads all text of the split once. Collects its pairs in `collect`, and counts those that are in `held_out`; either
// may be null.
// Errors: bad lines that `options` treat as errors, with file and line; unequal line counts; CheckSkipped's.
absl::StatusOr<SplitSurvey> SurveySplit(const Split& split, const PrepareOptions& options, PairHashes* collect,
                                        const PairHashes* held_out);

// Usable pairs of lines of a split, as two lists.
struct SampledText {
  std::vector<std::string> source;  // empty for plain text
  std::vector<std::string> target;
};
// Takes counts[i] of the usable[i] usable pairs of text i, spread evenly; where counts[i] is larger, some repeatedly.
absl::StatusOr<SampledText> SampleText(const Split& split, const PrepareOptions& options,
                                       const std::vector<int64_t>& usable, const std::vector<int64_t>& counts);

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

// Encodes the split into DIR/NAME.json and its shards. A sample's corpus_id is an index into split.pairs. `source` is
// not read for plain text.
// Errors: as SurveySplit; over-long sides if they are errors; those of writing.
absl::StatusOr<WrittenSplit> WriteSplit(const Split& split, const PrepareOptions& options,
                                        const SavedVocabulary& source, const SavedVocabulary& target);

}  // namespace hadal
