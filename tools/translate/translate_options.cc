#include "tools/translate/translate_options.h"

#include "runtime/status_macros.h"
#include "tools/checkpoint/checkpoint_command.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"
#include "tools/corpus/corpora_list.h"
#include "tools/translate/leading_tokens.h"

namespace hadal {
namespace {

void AddBeamOptions(Command command, BeamChoices& choices) {
  command.AddOption("--beam INT", choices.beam, "Hypotheses kept (default: decode.beam of the checkpoint's config)")
      .InRange(1, 64);
  command.AddOption("--length-penalty FLOAT", choices.length_penalty,
                    "Exponent of the length in the score; higher is longer (default: its decode.length_penalty)");
  command.AddOption("--max-len-a FLOAT", choices.max_length_a,
                    "Longest translation: a times the source's tokens + b (default: its decode.max_length_a)");
  command.AddOption("--max-len-b FLOAT", choices.max_length_b,
                    "The b of --max-len-a, in tokens (default: its decode.max_length_b)");
  command.AddOption("--min-len INT", choices.min_length, "Fewest tokens of a translation (default: 1)");
  command.AddOption("--no-repeat-ngram N", choices.no_repeat_ngram,
                    "No sequence of N tokens occurs twice; 0: any may (default: its decode.no_repeat_ngram)");
}

void AddSamplingOptions(Command command, BeamChoices& choices) {
  command.AddOption("--temperature FLOAT", choices.temperature,
                    "Draw tokens from the model's distribution; below 1 sharper (default when drawing: 1)");
  command.AddOption("--top-k INT", choices.top_k, "Draw from the K most likely tokens (default when drawing: 0, all)");
  command.AddOption("--top-p FLOAT", choices.top_p,
                    "Draw from the most likely tokens that reach probability P (default when drawing: 1)");
  command.AddOption("--seed UINT", choices.seed, "Seed of the draws (default: 1)");
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
  command.AddNumber("--batch", decoder.sentences, "Sentences decoded together; 0: as memory allows", 0, 1 << 20);
  command
      .AddSetter<int64_t>(
          "--cache-mib MIB", [&decoder](const int64_t& mib) { decoder.cache_limit_bytes = mib << 20; },
          "Limit of a rank's caches (default: 512, or what one sentence needs)")
      .InRange(int64_t{1}, int64_t{1} << 24);
  command.AddNumber("--buffer", options.buffer_lines,
                    "Lines read at a time; 1 for a program that waits for each answer", int64_t{1}, int64_t{1} << 32);
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

void AddOverwrite(Command command, TranslateOptions& options) {
  command.AddFlag("--overwrite", options.overwrite, "Replace FILE, if it is not empty");
}

void AddLengthOptions(Command command, TranslateOptions& options) {
  command.AddChoice<OverLong>("--on-long", options.over_long, "A sentence over --longest-source (default: error)",
                              {{"error", OverLong::kError}, {"skip", OverLong::kSkip}});
  command.AddNumber("--longest-source", options.decoder.longest_source, "Longest source in tokens, with </s>", 1,
                    65536);
}

absl::Status ChooseSampling(const BeamChoices& choices, int32_t nbest, BeamOptions& beam) {
  const char* const search = choices.beam              ? "--beam"
                             : choices.length_penalty  ? "--length-penalty"
                             : choices.no_repeat_ngram ? "--no-repeat-ngram"
                                                       : nullptr;
  if (search != nullptr) {
    return InvalidArgumentError(search,
                                " sets beam search, but --temperature, --top-k or --top-p "
                                "choose sampling (--nbest: the number of samples); leave one out");
  }
  const DrawOptions defaults;
  beam.beam = nbest;
  beam.length_penalty = 0;
  beam.no_repeat_ngram = 0;
  beam.sampling = {.temperature = choices.temperature.value_or(defaults.temperature),
                   .top_k = choices.top_k.value_or(defaults.top_k),
                   .top_p = choices.top_p.value_or(defaults.top_p),
                   .seed = choices.seed.value_or(defaults.seed)};
  return absl::OkStatus();
}

}  // namespace

void AddTranslateOptions(Command command, TranslateOptions& options) {
  AddCheckpointOption(command, options.checkpoint);
  command.AddOption("-i,--input", options.input,
                    "File of sentences, one per line (default: standard input); of speech: prefix of features");
  command.AddOption("-o,--out", options.output,
                    "File of translations, FILE.partial until complete (default: standard output)");
  AddOverwrite(command, options);
  command.AddOption("--prefix FILE", options.prefixes,
                    "What each output must begin with, one per line: text or a tag, as __de__");
  AddDirectionOptions(command, "Languages of a model with tags, as en-de; the output's text is without its tag",
                      options.direction, options.tags);
  AddBeamOptions(command, options.beam);
  command.AddNumber("--nbest", options.nbest, "Translations printed per sentence, best first; or drawn", 1, 64);
  AddLengthOptions(command, options);
  AddCommonOptions(command, options);
}

void AddSetTranslationOptions(Command command, TranslateOptions& options) {
  AddCheckpointOption(command, options.checkpoint);
  AddTagsOption(command, options.tags, "the model's");
  AddBeamOptions(command, options.beam);
  AddLengthOptions(command, options);
  AddSpeedOptions(command, options);
}

void AddSampleOptions(Command command, TranslateOptions& options) {
  options.language_model = true;
  options.beam.temperature = 1;
  options.beam.max_length_b = 200;
  AddCheckpointOption(command, options.checkpoint);
  command.AddOption("-p,--prompts FILE", options.input,
                    "Prompts to continue, one per line; - is standard input (default: one empty prompt)");
  command.AddOption("-o,--out", options.output,
                    "File of texts, FILE.partial until complete (default: standard output)");
  AddOverwrite(command, options);
  command.AddNumber("--nbest", options.nbest, "Texts drawn per prompt", 1, 64);
  command.AddOption("--max-len INT", options.beam.max_length_b,
                    "Longest text in tokens, its prompt included (default: 200, or what the model's positions allow)");
  command.AddOption("--min-len INT", options.beam.min_length, "Fewest tokens of a text (default: 1)");
  command.AddFlag("--ids", options.ids, "Prompts and texts are token ids, with spaces between them");
  AddCommonOptions(command, options);
}

absl::StatusOr<BeamOptions> ChosenBeam(const BeamChoices& choices, int32_t nbest, const ModelCheckpoint& checkpoint) {
  config::RunConfig config;
  if (const absl::Status status = MergeConfigText(checkpoint.config_text(), checkpoint.directory(), config);
      !status.ok()) {
    return FailedPreconditionError("the config in the checkpoint cannot be read; use the version that wrote it: ",
                                   status.message());
  }
  BeamOptions beam = MakeBeamOptions(config.decode());
  beam.beam = choices.beam.value_or(beam.beam);
  beam.length_penalty = choices.length_penalty.value_or(beam.length_penalty);
  beam.max_length_a = choices.max_length_a.value_or(beam.max_length_a);
  beam.max_length_b = choices.max_length_b.value_or(beam.max_length_b);
  beam.min_length = choices.min_length.value_or(beam.min_length);
  beam.no_repeat_ngram = choices.no_repeat_ngram.value_or(beam.no_repeat_ngram);
  if (choices.samples()) {
    HADAL_RETURN_IF_ERROR(ChooseSampling(choices, nbest, beam));
  } else if (choices.seed) {
    return InvalidArgumentError("--seed is of samples, and beam search draws none; add --temperature 1");
  }
  HADAL_RETURN_IF_ERROR(ValidateBeamOptions(beam));
  if (nbest >= 1 && nbest <= beam.beam) return beam;
  return InvalidArgumentError("--nbest ", nbest, " is outside 1 … beam = ", beam.beam, "; raise --beam");
}

}  // namespace hadal
