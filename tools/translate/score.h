// `hadal score` computes the probability that a model assigns to given translations, on any number of ranks.
//
//   hadal score RUN_OR_DIR --source FILE --target FILE [--direction en-de --tags PRESET] [--out FILE]
//   hadal score RUN_OR_DIR --source PREFIX --target FILE [--out FILE]  for speech: the prefix of features
//   hadal score RUN_OR_DIR --target FILE [--out FILE]                  for a language model
// Writes one line per pair, in the order of the files: the sum of the natural-log probabilities of the target's tokens
// and the number of tokens (both with </s>), separated by a tab. A blank side is scored as </s> alone. A pair's score
// depends on the model alone, not on other pairs. With --direction, sources and targets begin with its language tags;
// the target's is scored and counted as a token, as in training.
//   hadal score RUN_OR_DIR --target FILE --block N [--context C]
// scores a language model's text as one stream instead (StreamBlocks in score.cc), and writes one line per block: the
// sum over its new tokens, and their number. Where FILE has documents (tools/corpus/parallel_text.h), a pair or a
// line is a document. The summary on `log` has the perplexity per token, exp(total nll / target tokens), and per
// word, exp(total nll / words). Words are those of the target text, split at white space, plus one per line for its
// end (as fairseq and KenLM count), independent of the vocabulary. Only the perplexity per word can be compared
// between models with different vocabularies.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "layers/model_options.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/packed_batch.h"
#include "runtime/stream.h"
#include "tools/command_line.h"
#include "tools/translate/translate_options.h"

namespace hadal {

struct ScoreOptions {
  std::string checkpoint;                 // a checkpoint, or a run directory
  std::string source, target;             // paths; `source` is empty for a model without an encoder
  std::string output;                     // path; empty: standard output
  bool overwrite = false;                 // replaces `output`, if it is not empty
  std::string direction;                  // "en-de"; empty: none
  std::optional<LanguageTags> tags;       // where the direction's tags stand; not set: as in training
  bool ids = false;                       // the target is token ids
  std::string text_field = "text";        // of a target in JSON Lines
  bool documents = false;                 // blank lines separate documents of a target in plain text
  int64_t block = 0;                      // tokens of a block of the stream; 0: line by line
  int64_t context = 0;                    // tokens at the start of a block that repeat the previous block, not scored
  int32_t batch_tokens = 2048;            // capacity of a batch in rows per side; also limits a sentence
  OverLong over_long = OverLong::kError;  // kSkip: prints "nan" and 0 and counts the pair in the summary
  int64_t buffer_pairs = 2000;            // pairs that are read, scored and written at a time
  double wait_timeout_seconds = 600;
  int32_t threads = 0;  // for the launcher: CPU threads per rank; 0: its share
};

// All ranks call it together; rank 0 reads the input and writes to `out` (or the file) and `log`. Blocking.
// Errors: those of loading the checkpoint; InvalidArgument for files of unequal length and, with their number, for
// lines that are not UTF-8 or (with kError) too long; with a block, for a model that translates, a block that is longer
// than the model's positions or than a batch, and a context that leaves no new token.
absl::Status RunScore(const ScoreOptions& options, Communicator& communicator, const Stream& stream, std::ostream& out,
                      std::ostream& log);

// Adds the options to a subcommand.
void AddScoreOptions(Command command, ScoreOptions& options);

// Returns which tokens start and end the texts of a model (TextForm, runtime/data/packed_batch.h).
TextForm FormOf(const ModelOptions& model);

}  // namespace hadal
