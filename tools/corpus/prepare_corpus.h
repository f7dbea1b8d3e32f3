// The two passes of `hadal prepare` over the text of one split: check every line, then encode the usable ones. Also the
// command's vocabularies and its output folder.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/vocabulary.h"
#include "runtime/files.h"
#include "tools/corpus/cleaning_report.h"
#include "tools/corpus/parallel_text.h"
#include "tools/corpus/prepare.h"
#include "tools/corpus/text_codec.h"
#include "tools/output/staged_output.h"

namespace hadal {

// train, valid or test.
struct Split {
  std::string name;
  std::vector<TextPair> pairs;
  bool training = false;  // filters apply

  // The file by which messages name the split.
  const std::string& first_file() const { return pairs[0].source.empty() ? pairs[0].target : pairs[0].source; }
};

// Checks that all paths are regular files that can be opened: the text is read several times. Errors: OpenFile's.
absl::Status CheckReadable(const Split& split);

// The results of the first pass.
struct SplitSurvey {
  int64_t lines = 0;
  std::vector<TextFindings> texts;  // [pairs]; counts only defects that are visible without tokens
  std::vector<bool> dropped;        // [≤ lines] skipped by filters that need no tokens; false beyond its end
  int64_t byte_order_marks = 0;
  int64_t carriage_returns = 0;
  int64_t more_columns = 0;           // lines
  std::vector<std::string> oddities;  // ParallelReader::Oddity

  std::vector<int64_t> usable() const;  // [pairs] lines that are kept
};

// Reads all text of the split once. `held_out`: HashOfPair of every pair of the validation and test text. A call for
// these splits adds to it, so call this for the training split last.
// Errors: bad lines that `options` treat as errors, with file and line; unequal line counts; one of several texts has
// no usable lines; those of CheckSkipped.
absl::StatusOr<SplitSurvey> SurveySplit(const Split& split, const PrepareOptions& options, TextHashes& held_out);

// Usable pairs of lines of a split, as two lists.
struct SampledText {
  std::vector<std::string> source;  // empty for plain text
  std::vector<std::string> target;
};
// Takes counts[i] of the usable pairs of text i, spread evenly; if counts[i] exceeds their number, repeats some.
absl::StatusOr<SampledText> SampleText(const Split& split, const PrepareOptions& options, const SplitSurvey& survey,
                                       const std::vector<int64_t>& counts);

struct WrittenSplit {
  CorpusManifest manifest;
  std::vector<TextFindings> texts;  // [pairs]
  int64_t short_blocks = 0;         // last blocks of a file with fewer rows than options.block
};

// A vocabulary and the file it was saved to, in the output folder.
struct SavedVocabulary {
  Vocabulary vocabulary;
  std::string file;

  VocabularyReference reference() const { return {file, vocabulary.size(), vocabulary.crc32c()}; }
};

// The special tokens of a corpus's texts.
struct SpecialTokens {
  TextForm form;
  int32_t mask = -1;                // −1: none
  int32_t unknown = kUnknownToken;  // −1: none
  std::vector<int32_t> all = {};    // with a mask: all ids that are never replaced by it, ascending
};

// Encodes the split into DIR/NAME.json and its shards. A sample's corpus_id is an index into split.pairs. `source` is
// not used for plain text. `codec`: of the target's text.
// Errors: those of SurveySplit; over-long sides if options.on_long is kError; those of encoding and writing.
absl::StatusOr<WrittenSplit> WriteSplit(const Split& split, const PrepareOptions& options, const SplitSurvey& survey,
                                        const SavedVocabulary& source, const SavedVocabulary& target, TextCodec& codec,
                                        const SpecialTokens& special);

// Sets special.mask and special.all and, for a tokenizer.json, the tokens that start and end a text. Errors:
// InvalidArgument if the tokenizer.json has no token that ends documents or no mask (if one is required), or if its
// post-processor adds to a text more than one token besides the one that ends it; those of `codec`.
absl::Status SetSpecialTokens(const PrepareOptions& options, const Vocabulary& vocabulary, TextCodec& codec,
                              SpecialTokens& special);

// A pair of lines, or a line of plain text, as tokens.
struct EncodedLine {
  int64_t number = 0;  // line number, from 1
  Sample sample;
};

// Encodes lines to token ids in batches of a few thousand lines, with several threads. Segmentation takes nearly all
// the time of `hadal prepare`.
//
// Lines are returned in the order they were added; the result does not depend on the number of threads.
// Thread safety: one thread makes the calls; it takes part in the work. Memory: the text until full() (kMostLines lines
// or kMostBytes bytes and the line that passes them), and its ids.
class LineEncoder {
 public:
  static constexpr size_t kMostLines = 8192;
  static constexpr size_t kMostBytes = size_t{4} << 20;

  // `source`: null for plain text. All must outlive the encoder. `threads`: 0 for one per CPU. `texts`: Split::pairs,
  // for errors. `alone`: as in TextCodec; then also SentencePiece's pieces that continue a word get kContinuesWord.
  LineEncoder(const Vocabulary* source, const Vocabulary& target, TextCodec& codec, int threads,
              std::span<const TextPair> texts = {}, bool alone = false);

  // Copies a pair of lines. `corpus_id`: the index in Split::pairs of the text that has them.
  void Add(int32_t corpus_id, const ParallelLine& line);
  // Whether to call Encode now.
  bool full() const { return size_ >= kMostLines || bytes_ >= kMostBytes; }
  // Encodes the lines added since the last call. The result is valid until the next Add. Blocking: computes. Errors:
  // those of TextCodec::Encode.
  absl::StatusOr<std::span<EncodedLine>> Encode();

 private:
  struct Text {
    std::string source, target;
    bool has_ids = false;
  };
  // Encodes with codec_: for a tokenizer.json, and texts that are ids already.
  absl::Status EncodeElsewhere();

  const Vocabulary* source_;
  const Vocabulary& target_;
  TextCodec& codec_;
  const int threads_;
  const std::span<const TextPair> pairs_;
  const bool alone_;
  // [size_] in use; further entries keep their memory for reuse.
  std::vector<Text> texts_;
  std::vector<EncodedLine> lines_;
  size_t size_ = 0, bytes_ = 0;
};

// The file of the cleaning report.
inline constexpr char kCleaningReport[] = "cleaning.json";

// Manages the output folder of `hadal prepare`: allows one writer at a time, replaces corpora only if requested, and
// leaves no files of earlier corpora behind.
//
// Everything is written into FOLDER/.hadal.prepare, so that after an error or a signal the folder is as it was. Commit
// then removes the old manifests, moves the files into place, the new manifests last, and removes shards that only the
// old manifests named: an interruption never leaves a mixture of two corpora. A process that is killed leaves its
// .hadal.prepare, from which the next process detects that shards without a manifest may exist.
class PrepareOutput {
 public:
  // Checks what is in the folder. `given`: the existing vocabularies, null if they are to be trained; a vocabulary file
  // in the folder with the same contents is no error. Errors: AlreadyExists for any other file that preparing would
  // replace, unless it is a corpus's and `overwrite` is set, or a killed process left .hadal.prepare and there are no
  // manifests; those of CheckPlace. Writes nothing.
  static absl::Status CheckFree(const std::string& folder, bool overwrite, const CorpusVocabularies* given);
  // Returns InvalidArgument if a file that preparing may replace or delete in `folder` is one of `inputs`, also
  // through a link. `extension`: of the vocabularies.
  static absl::Status CheckInputs(const std::string& folder, std::string_view extension,
                                  const std::vector<std::string>& inputs);

  // Creates the folder if it is missing, and locks it while the object exists.
  // Errors: those of CheckFree and of OutputFolder::Take.
  static absl::StatusOr<PrepareOutput> Take(const std::string& folder, bool overwrite, const CorpusVocabularies* given);
  PrepareOutput(PrepareOutput&&) = default;
  ~PrepareOutput();

  // The folder in which to write until Commit.
  std::string staging() const { return StagingOf(folder_); }
  // Replaces the earlier corpora by the files in staging(). REQUIRES: `manifests` are those in staging().
  absl::Status Commit(const std::vector<CorpusManifest>& manifests);

 private:
  PrepareOutput(std::string folder, OutputFolder lock, bool was_left_unfinished)
      : folder_(std::move(folder)), lock_(std::move(lock)), was_left_unfinished_(was_left_unfinished) {}
  static std::string StagingOf(const std::string& folder) { return JoinPath(folder, ".hadal.prepare"); }
  // Removes the manifests and the report of earlier corpora. Returns the names of their shards.
  absl::StatusOr<std::set<std::string>> Clear() const;

  std::string folder_;  // "": moved
  OutputFolder lock_;
  bool was_left_unfinished_;                // an earlier process was interrupted
  std::optional<RemovedOnSignal> removal_;  // of staging(); none while Commit moves it
};

// The vocabularies of `hadal prepare`, saved in the output folder.
struct PreparedVocabularies {
  SavedVocabulary source;
  SavedVocabulary target;  // the source's file if they share one

  bool shared() const { return source.file == target.file; }
};

// Loads the existing vocabularies that `options` names; returns nullopt if they are to be trained.
// Errors: those of loading; invalid training options.
absl::StatusOr<std::optional<CorpusVocabularies>> GivenVocabularies(const PrepareOptions& options);

// Trains vocabularies on `train`; `survey` is SurveySplit's result for it. Writes progress to `out`.
// Blocking: takes seconds to minutes.
// Errors: those of training a vocabulary.
absl::StatusOr<CorpusVocabularies> TrainVocabularies(const PrepareOptions& options, const Split& train,
                                                     const SplitSurvey& survey, std::ostream& out);

// Checks the languages of texts that get tags.
// Errors: InvalidArgument if the languages of a text are not known, or if no training text has one of them: its tag
// would be untrained.
absl::Status CheckLanguages(const std::vector<Split>& splits);

// Adds the tags of the languages of all splits' texts to `vocabularies`, sorted by their codes, then `reserved` tags
// that no language has yet. REQUIRES: CheckLanguages(splits) is OK. Errors: those of AddLanguageTags.
absl::Status AddTagsOf(const std::vector<Split>& splits, int32_t reserved, CorpusVocabularies& vocabularies);

// Writes a warning to `out` if a training text has many targets that a vocabulary trained on it cannot spell: its
// normalization (NFKC by default) changes their characters. Errors: those of reading.
absl::Status WarnOfRewriting(const Split& train, const Vocabulary& target, std::ostream& out);

// Saves `vocabularies` in `directory`; identical ones are saved as one file.
absl::StatusOr<PreparedVocabularies> SaveVocabularies(CorpusVocabularies vocabularies, const std::string& directory);

}  // namespace hadal
