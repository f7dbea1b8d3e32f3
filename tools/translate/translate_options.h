// The options of `hadal translate` and `hadal sample` (translate.h). Choices for beam search and sampling on the
// command line override the config in the checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "pipeline/options/decoder_options.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/vocabulary.h"
#include "tools/command_line.h"

namespace hadal {

// A field that is not set keeps the value of the checkpoint's config.
struct BeamChoices {
  std::optional<int32_t> beam;
  std::optional<double> length_penalty, max_length_a, max_length_b;
  std::optional<int32_t> min_length;  // not set: BeamOptions' default, because a config has no such field
  std::optional<int32_t> no_repeat_ngram;
  // If any of these three is set, outputs are sampled; those that are not set have DrawOptions' defaults.
  std::optional<double> temperature;
  std::optional<int32_t> top_k;
  std::optional<double> top_p;
  std::optional<uint64_t> seed;  // of sampling

  bool samples() const { return temperature || top_k || top_p; }
};

// Returns the search options of the run that wrote the checkpoint, with `choices` in place of its values. If
// choices.samples(), the options sample `nbest` outputs per sentence, without length penalty.
// Errors: FailedPrecondition for a config that this version cannot read; InvalidArgument for a value out of range, for
// nbest > beam, for choices of beam search when sampling, and for a seed without sampling.
absl::StatusOr<BeamOptions> ChosenBeam(const BeamChoices& choices, int32_t nbest, const ModelCheckpoint& checkpoint);

// What to do with a sentence that is longer than the model's limit or --longest-source.
enum class OverLong { kError, kSkip };

struct TranslateOptions {
  std::string checkpoint;       // a checkpoint, or a run directory
  bool language_model = false;  // `hadal sample`: the input's lines are prompts
  std::string input;  // path or prefix of features; empty: stdin. `hadal sample`: "-": stdin, empty: one empty prompt
  std::string direction;             // "en-de"; empty: none
  std::optional<LanguageTags> tags;  // where the direction's tags stand; not set: as in training
  std::string prefixes;              // path of a file of forced beginnings of the outputs, one per line; empty: none
  std::string output;                // path; empty: standard output
  bool overwrite = false;            // replaces the file `output`, even if it is not empty
  BeamChoices beam;
  DecoderOptions decoder;  // its beam options are ignored: `beam` and the checkpoint set them
  int32_t nbest = 1;
  bool print_scores = false, json = false;
  bool ids = false;                       // `hadal sample`: prompts and texts are token ids
  OverLong over_long = OverLong::kError;  // kSkip: writes an empty line and counts it in the summary
  PieceJoining joining = PieceJoining::kDefault;
  int64_t buffer_lines = 2000;        // lines that are read, translated and written at a time
  double wait_timeout_seconds = 600;  // for waits on other ranks, not for reading
  int32_t threads = 0;                // for the launcher: CPU threads per rank; 0: its share
};

// Add the options to a subcommand.
void AddTranslateOptions(Command command, TranslateOptions& options);
// Adds the options of `hadal translate` that apply to several files: not those of one file (input, output, prefixes,
// direction), of sampling, --nbest and the form of the output.
void AddSetTranslationOptions(Command command, TranslateOptions& options);
// Adds the options of `hadal sample` and sets its defaults in `options`: temperature 1, at most 200 tokens.
void AddSampleOptions(Command command, TranslateOptions& options);

}  // namespace hadal
