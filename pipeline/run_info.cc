#include "pipeline/run_info.h"

#include "absl/strings/str_format.h"

namespace hadal {

RunInfo DescribeRun(const TrainOptions& options, const ModelPlan& plan, const PipelinePlan& pipeline, int threads,
                    int64_t first_step) {
  const ModelOptions& model = plan.options;
  return {.run_directory = options.run_directory,
          .model = absl::StrFormat("%s, d_model %d, %d heads, d_ff %d: %d sublayers", DepthName(model), model.d_model,
                                   model.heads, model.d_ff, model.encoder_sublayers() + model.decoder_sublayers()),
          .parameters = plan.ParameterElements(),
          .source_vocabulary = model.source_vocabulary,
          .target_vocabulary = model.target_vocabulary,
          .encoder_sublayers = model.encoder_sublayers(),
          .decoder_sublayers = model.decoder_sublayers(),
          .ranks = pipeline.grid.stages * pipeline.grid.replicas,
          .stages = pipeline.grid.stages,
          .replicas = pipeline.grid.replicas,
          .threads = threads,
          .first_step = first_step,
          .total_steps = options.stop.steps};
}

std::string DescribeLeftOut(std::string_view corpus, int64_t too_long, int64_t samples, const TrainOptions& options) {
  if (too_long == 0) return "";
  if (!options.model.has_encoder()) {
    return absl::StrFormat(
        "%d of %d %s samples are left out: a line is longer than batch.target_tokens = %d or model.max_positions = %d",
        too_long, samples, corpus, options.batch.target_tokens, options.model.max_positions);
  }
  return absl::StrFormat(
      "%d of %d %s samples are left out: a side is longer than batch.source_tokens = %d, batch.target_tokens = %d or "
      "model.max_positions = %d",
      too_long, samples, corpus, options.batch.source_tokens, options.batch.target_tokens, options.model.max_positions);
}

}  // namespace hadal
