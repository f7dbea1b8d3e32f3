// `hadal translate`: text in, translations out, over any number of ranks.
//
//   hadal translate --checkpoint DIR|RUN_DIR [--input FILE] [--out FILE] [--beam N] [--length-penalty P]
//                   [--max-len-a A] [--max-len-b B] [--nbest 1] [--print-scores] …
// Beam search is that of the run's BLEU at validations (the `decode` group of its config, which the checkpoint
// carries), but for what is given. One line a sentence, in the order of the input; an empty line gives an empty line.
// With --nbest N > 1 each input line gives up to N lines, best first, each beginning with the input line's number and a
// tab; --print-scores puts the score and a tab in front of the text (score: Σ log p / length^length_penalty, natural
// logarithm, </s> counted). A sentence's translation depends on the model and the options alone: not on the sentences
// around it, ranks or threads. (On a GPU the last bits of its score depend on --beam, --batch and --longest-source, by
// which products have their sizes: decode_capacity.h.)
// Limitation: input is read, translated and written --buffer lines at a time.
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

// What to do with a sentence longer than the model or --longest-source takes.
enum class OverLong { kError, kSkip };

// What is asked of beam search; what is not is as the checkpoint's config has it.
struct BeamChoices {
  std::optional<int32_t> beam;
  std::optional<double> length_penalty, max_length_a, max_length_b;
  std::optional<int32_t> min_length;  // BeamOptions': a config does not have it
};

struct TranslateOptions {
  std::string checkpoint;  // a checkpoint, or a run directory
  std::string input;       // path; empty: standard input
  std::string output;      // path; empty: standard output
  BeamChoices beam;
  DecoderOptions decoder;  // its beam search is not read: `beam` and the checkpoint say it
  int32_t nbest = 1;
  bool print_scores = false;
  OverLong over_long = OverLong::kError;  // kSkip: an empty line, counted in the summary
  PieceJoining joining = PieceJoining::kDefault;
  int64_t buffer_lines = 2000;
  double wait_timeout_seconds = 600;  // of a wait for another rank, reading excluded
  int32_t threads = 0;                // for launch: CPU threads a rank; 0: its share
};

// Where rank 0 reads and writes when no file is named, and where its summary goes.
struct TranslateStreams {
  std::istream& in;
  std::ostream& out;
  std::ostream& log;
};

// All ranks call it together; rank 0 reads and writes. Blocking.
// Errors: those of loading the checkpoint and of the decoder; FailedPrecondition for a checkpoint whose config this
// version cannot read; InvalidArgument for bad options, a line that is not UTF-8 or (with
// kError) too long, with its number; what the file system says.
absl::Status RunTranslate(const TranslateOptions& options, Communicator& communicator, const Stream& stream,
                          const TranslateStreams& streams);

// Adds the options to a subcommand.
void AddTranslateOptions(Command command, TranslateOptions& options);

}  // namespace hadal
