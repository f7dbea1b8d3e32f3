#include "tools/translate/translate_options.h"

#include "tools/corpus/corpora_list.h"
#include "tools/translate/direction_tags.h"

namespace hadal {
namespace {

void AddCheckpoint(Command command, TranslateOptions& options) {
  command
      .AddOption("RUN_OR_DIR", options.checkpoint,
                 "Checkpoint, or run directory (its best checkpoint, else its newest)")
      .Required();
}

// What all commands have.
void AddSpeedOptions(Command command, TranslateOptions& options) {
  DecoderOptions& decoder = options.decoder;
  command.AddChoice<PieceJoining>("--join", options.joining,
                                  "How tokens are joined to text (default: by the vocabulary)",
                                  {{"default", PieceJoining::kDefault},
                                   {"spaces", PieceJoining::kSpaces},
                                   {"bpe", PieceJoining::kBpe},
                                   {"sentencepiece", PieceJoining::kSentencePiece}});
  command.AddOption("--batch", decoder.sentences, "Sentences decoded together; 0: as memory allows").ShowDefault();
  command
      .AddSetter<int64_t>(
          "--cache-mib", [&decoder](const int64_t& mib) { decoder.cache_limit_bytes = mib << 20; },
          "Limit of a rank's caches (default: 512, or what one sentence needs)")
      .InRange(int64_t{1}, int64_t{1} << 24)
      .ValueName("MIB");
  command.AddOption("--buffer", options.buffer_lines, "Lines read at a time").ShowDefault();
  command.AddOption("--threads", options.threads, "CPU threads per rank (default: its share of the CPUs)")
      .InRange(0, 1024);
}

void AddCommonOptions(Command command, TranslateOptions& options) {
  AddSamplingOptions(command, options.beam);
  CommandOption scores =
      command.AddFlag("--print-scores", options.print_scores, "Print each output's score, then a tab, before it");
  command.AddFlag("--json", options.json, "Print a JSON object a line: texts, tokens, scores, log-probabilities")
      .Excludes(scores);
  AddSpeedOptions(command, options);
}

void AddLengthOptions(Command command, TranslateOptions& options) {
  command.AddChoice<OverLong>("--on-long", options.over_long, "A sentence over --longest-source (default: error)",
                              {{"error", OverLong::kError}, {"skip", OverLong::kSkip}});
  command.AddOption("--longest-source", options.decoder.longest_source, "Longest source in tokens, with </s>")
      .ShowDefault();
}

}  // namespace

void AddTranslateOptions(Command command, TranslateOptions& options) {
  AddCheckpoint(command, options);
  command.AddOption("-i,--input", options.input,
                    "File of sentences, one per line (default: standard input); of speech: prefix of features");
  command.AddOption("-o,--out", options.output,
                    "File of translations, FILE.partial until it is whole (default: standard output)");
  command
      .AddOption("--prefix", options.prefixes,
                 "What each output must begin with, one per line: text or a tag, as __de__")
      .ValueName("FILE");
  AddDirectionOptions(command, "Languages of a model with tags, as en-de; the output's text is without its tag",
                      options.direction, options.tags);
  AddBeamOptions(command, options.beam);
  command.AddOption("--nbest", options.nbest, "Translations printed per sentence, best first; or drawn")
      .InRange(1, 64)
      .ShowDefault();
  AddLengthOptions(command, options);
  AddCommonOptions(command, options);
}

void AddSetTranslationOptions(Command command, TranslateOptions& options) {
  AddCheckpoint(command, options);
  AddTagsOption(command, options.tags);
  AddBeamOptions(command, options.beam);
  AddLengthOptions(command, options);
  AddSpeedOptions(command, options);
}

void AddSampleOptions(Command command, TranslateOptions& options) {
  options.language_model = true;
  options.beam.temperature = 1;
  options.beam.max_length_b = 200;
  AddCheckpoint(command, options);
  command
      .AddOption("-p,--prompts", options.input,
                 "Prompts to continue, one per line; - is standard input (default: one empty prompt)")
      .ValueName("FILE");
  command.AddOption("-o,--out", options.output,
                    "File of texts, FILE.partial until it is whole (default: standard output)");
  command.AddOption("--nbest", options.nbest, "Texts drawn per prompt").InRange(1, 64).ShowDefault();
  command
      .AddOption("--max-len", options.beam.max_length_b,
                 "Longest text in tokens, its prompt included (default: 200, or what the model's positions allow)")
      .ValueName("INT");
  command.AddOption("--min-len", options.beam.min_length, "Fewest tokens of a text (default: 1)").ValueName("INT");
  AddCommonOptions(command, options);
}

}  // namespace hadal
