// `hadal translate`: text in, translations out, over any number of ranks.
//
//   hadal translate --checkpoint DIR|RUN_DIR [--input FILE] [--out FILE] [--beam 4] [--length-penalty 0.6]
//                   [--max-len-a 0] [--max-len-b 200] [--nbest 1] [--print-scores] …
// One line a sentence, in the order of the input; an empty line gives an empty line. With --nbest N > 1 each input line gives up
// to N lines, best first, each beginning with the input line's number and a tab; --print-scores puts the score and a tab in
// front of the text (score: Σ log p / length^length_penalty, natural logarithm, </s> counted).
// A sentence's translation depends on the model and the options alone: not on the sentences around it, ranks or threads. (On a GPU the last bits
// of its score depend on --beam, --batch and --longest-source, by which products have their sizes: decode_capacity.h.)
// Limitation: input is read, translated and written --buffer lines at a time.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "absl/status/status.h"
#include "pipeline/decode/decode_capacity.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/vocabulary.h"
#include "runtime/stream.h"

namespace CLI {
class App;
}

namespace hadal {

// What to do with a sentence longer than the model or --longest-source takes.
enum class OverLong { kError, kSkip };

struct TranslateOptions {
  std::string checkpoint;  // a checkpoint, or a run directory
  std::string input;       // path; empty: standard input
  std::string output;      // path; empty: standard output
  DecoderOptions decoder;
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
// Errors: those of loading the checkpoint and of the decoder; InvalidArgument for bad options, a line that is not UTF-8 or (with
// kError) too long, with its number; what the file system says.
absl::Status RunTranslate(const TranslateOptions& options, Communicator& communicator, const Stream& stream,
                          const TranslateStreams& streams);

// Adds the options to a subcommand.
void AddTranslateOptions(CLI::App& command, TranslateOptions& options);

}  // namespace hadal
