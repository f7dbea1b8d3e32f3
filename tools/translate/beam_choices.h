// What the command line chooses of beam search and sampling, over the config in the checkpoint.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "pipeline/options/decoder_options.h"
#include "tools/command_line.h"

namespace hadal {

// An empty one keeps the value of the checkpoint's config.
struct BeamChoices {
  std::optional<int32_t> beam;
  std::optional<double> length_penalty, max_length_a, max_length_b;
  std::optional<int32_t> min_length;  // empty: BeamOptions' default, because a config has no such field
  std::optional<int32_t> no_repeat_ngram;
  // Any of these three: outputs are drawn; the others are DrawOptions' defaults.
  std::optional<double> temperature;
  std::optional<int32_t> top_k;
  std::optional<double> top_p;
  std::optional<uint64_t> seed;  // of sampling

  bool samples() const { return temperature || top_k || top_p; }
};

// The search of the run that wrote the checkpoint, overridden by the choices. When sampling, `nbest` outputs are drawn,
// without length penalty.
// Errors: FailedPrecondition for a config that this version cannot read; InvalidArgument for a value out of range, for
// nbest > beam, and for choices of beam search when sampling.
absl::StatusOr<BeamOptions> ChosenBeam(const BeamChoices& choices, int32_t nbest, const ModelCheckpoint& checkpoint);

// Add the options to a subcommand.
void AddBeamOptions(Command command, BeamChoices& choices);
void AddSamplingOptions(Command command, BeamChoices& choices);

}  // namespace hadal
