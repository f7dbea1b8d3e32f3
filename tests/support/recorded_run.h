// Writes a run directory as a training run does, with numbers given by a test.
#pragma once

#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/metrics_sink.h"
#include "tools/output/metrics_jsonl.h"

namespace hadal {

struct RecordedRun {
  int threads = 1;
  int steps = 6;
  int64_t tokens = 1000;  // per step
  int micro_batches = 8;
  int replicas = 1;
  int vocabulary = 0;              // of both sides; 0: not recorded
  int frame_width = 0;             // of speech
  std::vector<StageTimes> stages;  // of every step except the first, which takes twice as long
  double other_seconds = 0;        // per step, besides the first stage's parts
  std::string config;              // more of the config, as text
  bool depth = false;              // two encoder and three decoder sublayers, recorded at every step
};

inline DepthMetrics RecordedDepth(int step) {
  DepthMetrics depth{.step = step + 1, .update = step + 1, .model_update = 0.5 * step};
  for (size_t s = 0; s < kDepthSeriesCount; ++s) {
    for (int sublayer = 0; sublayer < 5; ++sublayer) {
      depth.series[s].push_back(0.01f * static_cast<float>((sublayer + 1) * (step + 1)));
    }
  }
  depth[DepthSeries::kActive][0] = std::numeric_limits<float>::quiet_NaN();
  depth[DepthSeries::kOutputGradient][1] = std::numeric_limits<float>::infinity();
  return depth;
}

inline double StepSeconds(const RecordedRun& run) {
  const StageTimes& t = run.stages.front();
  return t.forward_seconds + t.recompute_seconds + t.backward_seconds + t.wait_seconds + t.communication_seconds +
         t.optimizer_seconds + t.checkpoint_seconds + run.other_seconds;
}

// Creates `directory`. REQUIRES: at least one stage.
inline void WriteRecordedRun(const std::string& directory, const RecordedRun& run) {
  HADAL_CHECK(MakeDirectories(directory).ok());
  HADAL_CHECK(
      ReplaceFile(JoinPath(directory, "config.resolved.textproto"),
                  absl::StrCat("batch { micro_batches: ", run.micro_batches, " } pipeline { replicas: ", run.replicas,
                               " threads: ", run.threads, " } stop { steps: ", run.steps, " }\n", run.config),
                  "test")
          .ok());
  auto sink = MetricsJsonl::Open({.path = JoinPath(directory, "metrics.jsonl")});
  HADAL_CHECK(sink.ok());
  const int ranks = static_cast<int>(run.stages.size()) * run.replicas;
  (*sink)->OnStart({.model = "a model",
                    .parameters = 12345,
                    .source_vocabulary = run.vocabulary,
                    .frame_width = run.frame_width,
                    .target_vocabulary = run.vocabulary,
                    .encoder_sublayers = run.depth ? 2 : 0,
                    .decoder_sublayers = run.depth ? 3 : 0,
                    .ranks = ranks,
                    .stages = ranks,
                    .threads = run.threads});
  double elapsed = 0;
  for (int step = 0; step < run.steps; ++step) {
    const double seconds = (step == 0 ? 2 : 1) * StepSeconds(run);
    elapsed += seconds + 0.01;
    (*sink)->OnStep({.step = step + 1,
                     .update = step + 1,
                     .loss = 7.0 - 0.1 * step,
                     .nll = 6.5 - 0.1 * step,
                     .learning_rate = 1e-4 * step,
                     .gradient_norm = 1.5,
                     .target_tokens = run.tokens,
                     .tokens_per_second = static_cast<double>(run.tokens) / seconds,
                     .step_seconds = seconds,
                     .elapsed_seconds = elapsed,
                     .stages = run.stages,
                     .memory = std::vector<StageMemory>(run.stages.size(),
                                                        {int64_t{300} << 20, int64_t{320} << 20, int64_t{350} << 20})});
    if (run.depth) (*sink)->OnDepth(RecordedDepth(step));
  }
  (*sink)->OnValidation(
      {.step = run.steps, .nll = 6.2, .scores = TranslationScores{.bleu = 12.5, .word_error_rate = 0.107}});
  (*sink)->OnFinish("all steps done");
}

}  // namespace hadal
