// The options of `hadal translate` and `hadal sample` (translate.h).
#pragma once

#include <cstdint>
#include <string>

#include "pipeline/options/decoder_options.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/vocabulary.h"
#include "tools/command_line.h"
#include "tools/translate/beam_choices.h"

namespace hadal {

// What to do with a sentence that is longer than the model's limit or --longest-source.
enum class OverLong { kError, kSkip };

struct TranslateOptions {
  std::string checkpoint;       // a checkpoint, or a run directory
  bool language_model = false;  // `hadal sample`: the input's lines are prompts
  std::string input;      // path; empty: standard input; of prompts: "-" is standard input, empty one empty prompt
  std::string direction;  // "en-de"; empty: none
  LanguageTags tags = LanguageTags::kNone;  // where the direction's tags stand
  std::string prefixes;                     // path of the forced beginnings; empty: none
  std::string output;                       // path; empty: standard output
  BeamChoices beam;
  DecoderOptions decoder;  // its beam options are ignored: `beam` and the checkpoint set them
  int32_t nbest = 1;
  bool print_scores = false, json = false;
  OverLong over_long = OverLong::kError;  // kSkip: writes an empty line and counts it in the summary
  PieceJoining joining = PieceJoining::kDefault;
  int64_t buffer_lines = 2000;
  double wait_timeout_seconds = 600;  // for waits on other ranks, not for reading
  int32_t threads = 0;                // for the launcher: CPU threads per rank; 0: its share
};

// Add the options to a subcommand.
void AddTranslateOptions(Command command, TranslateOptions& options);
// Those of `hadal translate` that hold for several files: without input, output, direction and forms of output.
void AddSetTranslationOptions(Command command, TranslateOptions& options);
void AddSampleOptions(Command command, TranslateOptions& options);

}  // namespace hadal
