// `hadal translate` translates text, and `hadal sample` writes text with a language model, on any number of ranks.
//
//   hadal translate RUN_OR_DIR [--input FILE] [--out FILE] [--prefix FILE] [--nbest 1] [--print-scores | --json]
//                   [--beam N] [--length-penalty P] [--max-len-a A] [--max-len-b B] …
//                   [--temperature T] [--top-k K] [--top-p P] [--seed S]
//   hadal sample    RUN_OR_DIR [--prompts FILE] [--out FILE] [--nbest 1] [--print-scores | --json] [--max-len N] …
// Beam search uses the `decode` group of the run's config, which the checkpoint contains, as the run's validation BLEU
// does; options override it. With --temperature, --top-k or --top-p, and in `hadal sample`, --nbest outputs are drawn
// instead (pipeline/decode/beam_search.h). Writes one line per sentence, in the order of the input; an empty line gives
// an empty line. translation_output.h has the forms of --nbest, --print-scores and --json. The score is Σ log p /
// length^length_penalty, natural logarithm, with </s>; of a sample Σ log p.
// --prefix: line n of FILE is text that output n must begin with (leading_tokens.h); an empty line forces nothing.
// --prompts: each line of FILE ("-": of standard input) is a prompt, which an output of the language model must begin
// with; without --prompts there is one empty prompt. Forced tokens are part of the output and of its score.
// A sentence's output depends only on the model, the options and, for samples, its line's number; not on other
// sentences, ranks or threads. (On a GPU the last bits of its score depend on --beam, --batch and --longest-source,
// which determine the sizes of products: decode_capacity.h.) translation_output.h also describes how --out is written.
// --buffer lines at a time are read, then translated, then written; one line at a time if they are typed.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"
#include "tools/translate/translate_options.h"

namespace hadal {

// Rank 0's input and output if no files are named, and the stream for its summary.
struct TranslateStreams {
  std::istream& in;
  std::ostream& out;
  std::ostream& log;
  bool typed = false;      // `in` is a terminal: each line's output is written before the next line is read
  std::string unreadable;  // why `in` must not be read (StandardInputFault, launch/task_launcher.h); "": it may be read
};

// All ranks call it together; rank 0 reads and writes. Blocking.
// Errors: those of loading the checkpoint and of the decoder; FailedPrecondition for a checkpoint whose config this
// version cannot read; InvalidArgument for bad options, for a language model in `hadal translate` or a translation
// model in `hadal sample`, and, with the line's number, for a line that is not UTF-8 or too long (where that is an
// error), and for a forced beginning that is too long, has tokens that the vocabulary lacks, or is missing; those of
// files.
absl::Status RunTranslate(const TranslateOptions& options, Communicator& communicator, const Stream& stream,
                          const TranslateStreams& streams);

// A file to translate, one of several.
struct TranslationJob {
  std::string direction;      // "en-de"; without effect if the options have no tags
  std::string input, output;  // paths
};
// Returns the next file, or nullopt at the end. When it is called, the previous output file is complete and closed.
using NextTranslation = std::function<absl::StatusOr<std::optional<TranslationJob>>()>;

// As RunTranslate, for several files; loads the model once. `next` is called on rank 0 only.
// REQUIRES: options name no input, output or direction.  Errors: those of RunTranslate and of `next`.
absl::Status RunTranslations(const TranslateOptions& options, const NextTranslation& next, Communicator& communicator,
                             const Stream& stream, const TranslateStreams& streams);

}  // namespace hadal
