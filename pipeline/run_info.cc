#include "pipeline/run_info.h"

#include <algorithm>
#include <span>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace hadal {
namespace {

double ShareOf(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

RunInfo DescribeRun(const TrainOptions& options, const ModelPlan& plan, const PipelineLayout& pipeline, int threads,
                    int64_t first_step) {
  const ModelOptions& model = plan.options;
  const std::span<const int32_t> cuts(pipeline.borders.begin() + 1, pipeline.borders.end() - 1);
  const std::string recomputed =
      pipeline.recompute.size() > 1
          ? absl::StrFormat(", %d sublayers recomputed", std::ranges::count(pipeline.recomputed, true))
          : "";
  const bool together = pipeline.grid.placement == Placement::kReplicasTogether;
  return {.run_directory = options.run_directory,
          .model = absl::StrFormat("%s, d_model %d, %d heads, d_ff %d: %d sublayers", DepthName(model), model.d_model,
                                   model.heads, model.d_ff, model.encoder_sublayers() + model.decoder_sublayers()),
          .parameters = plan.ParameterElements(),
          .source_vocabulary = model.source_vocabulary,
          .frame_width = model.frame_width,
          .target_vocabulary = model.target_vocabulary,
          .encoder_sublayers = model.encoder_sublayers(),
          .decoder_sublayers = model.decoder_sublayers(),
          .ranks = pipeline.grid.stages * pipeline.grid.replicas,
          .stages = pipeline.grid.stages,
          .replicas = pipeline.grid.replicas,
          .free_links = pipeline.shape.free_links,
          .threads = threads,
          .recompute_every = LongestLength(pipeline.recompute),
          .layout = absl::StrFormat("%s, chunks %d, cut before sublayers [%s], outstanding sends %d, %s%s",
                                    ToString(pipeline.schedule), pipeline.shape.chunks, absl::StrJoin(cuts, ", "),
                                    pipeline.outstanding_sends, together ? "replicas together" : "stages together",
                                    recomputed),
          .first_step = first_step,
          .total_steps = options.stop.steps};
}

std::string DescribeLeftOut(std::string_view corpus, int64_t too_long, int64_t samples, const TrainOptions& options) {
  if (too_long == 0) return "";
  const std::string counts = absl::StrFormat("%d of %d %s samples (%.3g%%) are left out", too_long, samples, corpus,
                                             100 * ShareOf(too_long, samples));
  if (!options.model.translates()) {
    return absl::StrFormat("%s: a line is longer than batch.target_tokens = %d or model.max_positions = %d", counts,
                           options.batch.target_tokens, options.model.max_positions);
  }
  return absl::StrFormat(
      "%s: a side is longer than batch.source_tokens = %d, batch.target_tokens = %d or model.max_positions = %d",
      counts, options.batch.source_tokens, options.batch.target_tokens, options.model.max_positions);
}

absl::Status CheckLeftOut(int64_t too_long, int64_t samples, const TrainOptions& options) {
  if (ShareOf(too_long, samples) <= options.max_left_out) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s; data.max_left_out allows a share of %g. Raise those limits, prepare shorter samples, or raise "
      "data.max_left_out if the rest is what should be trained on",
      DescribeLeftOut("training", too_long, samples, options), options.max_left_out));
}

}  // namespace hadal
