// `hadal translate` translates text, on any number of ranks.
//
//   hadal translate RUN_OR_DIR [--input FILE] [--out FILE] [--beam N] [--length-penalty P]
//                   [--max-len-a A] [--max-len-b B] [--nbest 1] [--print-scores] …
// Beam search uses the `decode` group of the run's config, which the checkpoint contains, as the run's validation BLEU
// does; options override it. Writes one line per sentence, in the order of the input; an empty line gives an empty
// line. With --nbest N > 1, writes up to N lines per input line, best first, each starting with the input line's number
// and a tab. --print-scores puts the score and a tab before the text (score: Σ log p / length^length_penalty, natural
// logarithm, with </s>). A sentence's translation depends only on the model and the options, not on other sentences,
// ranks or threads. (On a GPU the last bits of its score depend on --beam, --batch and --longest-source, which
// determine the sizes of products: decode_capacity.h.)
// --buffer lines at a time are read, then translated, then written; one line at a time if they are typed.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "pipeline/plan/decoder_options.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/vocabulary.h"
#include "runtime/stream.h"
#include "tools/command_line.h"

namespace hadal {

// What to do with a sentence that is longer than the model's limit or --longest-source.
enum class OverLong { kError, kSkip };

// Overrides of beam search options; an empty one keeps the value of the checkpoint's config.
struct BeamChoices {
  std::optional<int32_t> beam;
  std::optional<double> length_penalty, max_length_a, max_length_b;
  std::optional<int32_t> min_length;  // empty: BeamOptions' default, because a config has no such field
};

struct TranslateOptions {
  std::string checkpoint;  // a checkpoint, or a run directory
  std::string input;       // path; empty: standard input
  std::string output;      // path; empty: standard output
  BeamChoices beam;
  DecoderOptions decoder;  // its beam options are ignored: `beam` and the checkpoint set them
  int32_t nbest = 1;
  bool print_scores = false;
  OverLong over_long = OverLong::kError;  // kSkip: writes an empty line and counts it in the summary
  PieceJoining joining = PieceJoining::kDefault;
  int64_t buffer_lines = 2000;
  double wait_timeout_seconds = 600;  // for waits on other ranks, not for reading
  int32_t threads = 0;                // for the launcher: CPU threads per rank; 0: its share
};

// Rank 0's input and output if no files are named, and the stream for its summary.
struct TranslateStreams {
  std::istream& in;
  std::ostream& out;
  std::ostream& log;
  bool typed = false;  // `in` is a terminal: each line is answered before the next one is read
};

// All ranks call it together; rank 0 reads and writes. Blocking.
// Errors: those of loading the checkpoint and of the decoder; FailedPrecondition for a checkpoint whose config this
// version cannot read; InvalidArgument for bad options and, with its number, for a line that is not UTF-8 or (with
// kError) too long; those of files.
absl::Status RunTranslate(const TranslateOptions& options, Communicator& communicator, const Stream& stream,
                          const TranslateStreams& streams);

// Adds the options to a subcommand.
void AddTranslateOptions(Command command, TranslateOptions& options);

}  // namespace hadal
