#include "tools/translate/beam_choices.h"

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"

namespace hadal {
namespace {

absl::Status ChooseSampling(const BeamChoices& choices, int32_t nbest, BeamOptions& beam) {
  const char* const search = choices.beam              ? "--beam"
                             : choices.length_penalty  ? "--length-penalty"
                             : choices.no_repeat_ngram ? "--no-repeat-ngram"
                                                       : nullptr;
  if (search != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(search,
                                                   " sets beam search, but --temperature, --top-k or --top-p "
                                                   "choose sampling (--nbest: the number of samples); leave one out"));
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

absl::StatusOr<BeamOptions> ChosenBeam(const BeamChoices& choices, int32_t nbest, const ModelCheckpoint& checkpoint) {
  config::RunConfig config;
  if (const absl::Status status = MergeConfigText(checkpoint.config_text(), checkpoint.directory(), config);
      !status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the config in the checkpoint cannot be read; use the version that wrote it: ", status.message()));
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
    return absl::InvalidArgumentError("--seed is of samples, and beam search draws none; add --temperature 1");
  }
  HADAL_RETURN_IF_ERROR(ValidateBeamOptions(beam));
  if (nbest >= 1 && nbest <= beam.beam) return beam;
  return absl::InvalidArgumentError(
      absl::StrCat("--nbest ", nbest, " is outside 1 … beam = ", beam.beam, "; raise --beam"));
}

void AddBeamOptions(Command command, BeamChoices& choices) {
  command.AddOption("--beam", choices.beam, "Hypotheses kept (default: decode.beam of the checkpoint's config)")
      .InRange(1, 64)
      .ValueName("INT");
  command
      .AddOption("--length-penalty", choices.length_penalty,
                 "Exponent of the length in the score; higher is longer (default: its decode.length_penalty)")
      .ValueName("FLOAT");
  command
      .AddOption("--max-len-a", choices.max_length_a,
                 "Longest translation: a times the source's tokens + b (default: its decode.max_length_a)")
      .ValueName("FLOAT");
  command
      .AddOption("--max-len-b", choices.max_length_b,
                 "The b of --max-len-a, in tokens (default: its decode.max_length_b)")
      .ValueName("FLOAT");
  command.AddOption("--min-len", choices.min_length, "Fewest tokens of a translation (default: 1)").ValueName("INT");
  command
      .AddOption("--no-repeat-ngram", choices.no_repeat_ngram,
                 "No sequence of N tokens occurs twice; 0: any may (default: its decode.no_repeat_ngram)")
      .ValueName("N");
}

void AddSamplingOptions(Command command, BeamChoices& choices) {
  command
      .AddOption("--temperature", choices.temperature,
                 "Draw tokens from the model's distribution; below 1 sharper (default when drawing: 1)")
      .ValueName("FLOAT");
  command.AddOption("--top-k", choices.top_k, "Draw from the K most likely tokens (default when drawing: 0, all)")
      .ValueName("INT");
  command
      .AddOption("--top-p", choices.top_p,
                 "Draw from the most likely tokens that reach probability P (default when drawing: 1)")
      .ValueName("FLOAT");
  command.AddOption("--seed", choices.seed, "Seed of the draws (default: 1)").ValueName("UINT");
}

}  // namespace hadal
