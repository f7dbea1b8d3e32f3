// `hadal prepare`: raw parallel text, or plain text, → a vocabulary and checksummed token corpora.
//
//   hadal prepare --train SOURCE TARGET [--train …] [--valid SOURCE TARGET] [--test SOURCE TARGET] --out DIR
//   hadal prepare --monolingual --train FILE [--train …] [--valid FILE] [--test FILE] --out DIR
// writes into DIR: vocabulary.model (or source.model and target.model; .txt for a dictionary), and for each split that
// was given NAME.json and NAME.00000.shard … (runtime/data/README.md). `hadal train` takes the prefix, DIR/train.
// --monolingual is for language models: a sentence or a document a line, samples without a source.
//
// The vocabulary is trained on the training text (SentencePiece: BPE or unigram, one for both sides or one each), or an
// existing SentencePiece model, or a fairseq dict.txt with text already tokenised.
// Every line is kept, skipped with a count in the summary, or an error with file and line: never lost in silence; where
// nearly all of a text would be skipped, that is an error. What can be refused without the text is refused before any
// of it is read, and all text is read through once before anything is written, so that a bad line in the last file is
// found first, not after an hour. Deterministic: the same text and options give the same files, whatever the threads.
// One process at a time writes into DIR; another is refused (prepare_output.h).
// Memory does not grow with the text: one shard, some thousand lines, and --vocab-pairs pairs while the vocabulary is
// trained.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/data/vocabulary_training.h"
#include "tools/command_line.h"
#include "tools/corpus/parallel_text.h"

namespace hadal {

// What to do with a pair of lines that cannot be trained on.
enum class BadLine { kError, kSkip };

struct PrepareOptions {
  bool monolingual = false;  // plain text for language models: every pair is a target alone
  std::vector<TextPair> train;
  std::vector<TextPair> valid;
  std::vector<TextPair> test;
  std::string output;  // a folder, made where it is missing

  // Existing vocabularies; both empty: train. Only one of them: it serves both sides.
  std::string source_vocabulary;
  std::string target_vocabulary;
  VocabularyTraining training;
  bool separate = false;                 // train one vocabulary a side
  int64_t vocabulary_pairs = 1'000'000;  // train it on at most so many pairs, spread evenly over the text

  int64_t max_tokens = 256;           // a longer side (in tokens, </s> not counted) is over-long
  BadLine on_empty = BadLine::kSkip;  // a side is blank, or nothing of it is left after normalisation
  BadLine on_long = BadLine::kSkip;
  BadLine on_invalid = BadLine::kError;  // not UTF-8
  double most_skipped = 0.9;             // share of a split's lines, [0, 1]; more is an error
  bool overwrite = false;                // replace what `output` holds
  int threads = 0;                       // that turn text into ids; 0: one a CPU this process may run on
};

// Runs, with progress and a summary in words on `out`.
// Errors: bad input as above; AlreadyExists for an output folder that holds a corpus; FailedPrecondition for one that
// another process is writing into; NotFound; InvalidArgument for options that exclude each
// other or a split of which nothing is left.
absl::Status RunPrepare(const PrepareOptions& options, std::ostream& out);

// Registers the subcommand; running it stores 0, 1 (error) or 2 (bad usage) in `exit_code`.
void AddPrepareCommand(Command app, int& exit_code);

}  // namespace hadal
