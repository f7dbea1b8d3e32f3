// `hadal score`: how probable a model finds given translations, over any number of ranks.
//
//   hadal score --checkpoint DIR|RUN_DIR --source FILE --target FILE [--out FILE]
//   hadal score --checkpoint DIR|RUN_DIR --target FILE [--out FILE]                  of a language model
// One line a pair, in the order of the files: the summed natural-log probability of the target's tokens and their
// number (</s> counted in both), separated by a tab. A blank side is scored as </s> alone. A pair's score depends on
// the model alone, not on the pairs around it.
// The summary on `log` gives the perplexity a token, exp(total nll / target tokens), and a word, exp(total nll /
// words): words are the target's as written, cut at white space, and one more a line for its end (so count fairseq and
// KenLM), whatever the vocabulary. Models of different vocabularies can be compared by the second only.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"
#include "tools/command_line.h"
#include "tools/translate/translate.h"

namespace hadal {

struct ScoreOptions {
  std::string checkpoint;                 // a checkpoint, or a run directory
  std::string source, target;             // paths; no source where the model has no encoder
  std::string output;                     // path; empty: standard output
  int32_t batch_tokens = 2048;            // rows a batch holds, a side; also bounds a sentence
  OverLong over_long = OverLong::kError;  // kSkip: "nan" and 0, counted in the summary
  int64_t buffer_pairs = 2000;
  double wait_timeout_seconds = 600;
  int32_t threads = 0;  // for launch: CPU threads a rank; 0: its share
};

// All ranks call it together; rank 0 reads, and writes to `out` (or the file) and `log`. Blocking.
// Errors: those of loading the checkpoint; InvalidArgument for files of unequal length, lines that are not UTF-8 or
// (with kError) too long, with their number.
absl::Status RunScore(const ScoreOptions& options, Communicator& communicator, const Stream& stream, std::ostream& out,
                      std::ostream& log);

// Adds the options to a subcommand.
void AddScoreOptions(Command command, ScoreOptions& options);

}  // namespace hadal
