// The two passes of `hadal prepare` over the text of one split: check every line, then encode the usable ones.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/vocabulary.h"
#include "tools/corpus/cleaning_report.h"
#include "tools/corpus/parallel_text.h"
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

// Encodes lines to token ids in batches of a few thousand lines, with several threads. Segmentation takes nearly all
// the time of `hadal prepare`.
//
// Lines are returned in the order they were added; the result does not depend on the number of threads.
// Thread safety: one thread; it takes part in the work. Memory: kMostLines lines or kMostBytes bytes of text, and their
// ids.

// A pair of lines as tokens.
struct EncodedLine {
  int64_t number = 0;  // line number, from 1
  Sample sample;
};

class LineEncoder {
 public:
  static constexpr size_t kMostLines = 8192;
  static constexpr size_t kMostBytes = size_t{4} << 20;

  // `source`: null for plain text. Both must outlive the encoder. `threads`: 0 for one per CPU.
  LineEncoder(const Vocabulary* source, const Vocabulary& target, int threads);

  // Copies a pair of lines; `corpus_id`: the index of their pair of files.
  void Add(int32_t corpus_id, const ParallelLine& line);
  bool full() const { return size_ >= kMostLines || bytes_ >= kMostBytes; }
  // Encodes the lines added since the last call. The result is valid until the next Add. Blocking: computes.
  std::span<EncodedLine> Encode();

 private:
  struct Text {
    std::string source, target;
  };

  const Vocabulary* source_;
  const Vocabulary& target_;
  const int threads_;
  // [size_] in use; further entries keep their memory for reuse.
  std::vector<Text> texts_;
  std::vector<EncodedLine> lines_;
  size_t size_ = 0, bytes_ = 0;
};

}  // namespace hadal
